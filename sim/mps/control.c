/* control.c: a small nvidia-cuda-mps-control, with its server. It knows -f, the orders
 * get_server_list, get_client_list, get_default_active_thread_percentage, terminate_client and
 * quit, and what a fault in one program does to the others. Must never use the simulated driver: it
 * has no memory of its own on a card. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "sim/mps/talk.h"

#define SERVER    "nvidia-cuda-mps-server"
#define SERVER_FD 3

static struct talk_packet say(enum talk what, const char *text)
{
        struct talk_packet p = {.what = what};

        (void)snprintf(p.text, sizeof(p.text), "%s", text);
        return p;
}

static bool send_packet(int fd, const struct talk_packet *p, const int *fds, unsigned n)
{
        struct talk_packet copy = *p;
        union descriptors room;
        struct iovec data = {&copy, sizeof(copy)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};

        descriptors_attach(&h, &room, fds, n);
        return sendmsg(fd, &h, MSG_NOSIGNAL) == (ssize_t)sizeof(copy);
}

static bool receive_packet(int fd, struct talk_packet *ret, int *ret_fd)
{
        union descriptors room;
        struct iovec data = {ret, sizeof(*ret)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        bool ok;

        descriptors_expect(&h, &room);
        ok = recvmsg(fd, &h, MSG_CMSG_CLOEXEC) == (ssize_t)sizeof(*ret);
        if (!ok || descriptors_take(&h, 1, ret_fd) != 1)
                *ret_fd = -1;
        ret->text[TALK_TEXT - 1] = '\0';
        return ok;
}

/* ---- the server ---- */

static struct client {
        int fd;
        pid_t pid;
} clients[TALK_CLIENTS];
static unsigned n_clients;

static void remove_client(unsigned i)
{
        (void)close(clients[i].fd);
        clients[i] = clients[--n_clients];
}

static void add_client(int fd, pid_t pid)
{
        const struct talk_packet p = say(n_clients < TALK_CLIENTS ? TALK_WELCOME : TALK_FULL, "");
        const bool sent = send_packet(fd, &p, NULL, 0);

        if (sent && p.what == TALK_WELCOME)
                clients[n_clients++] = (struct client){fd, pid};
        else
                (void)close(fd);
}

static void tell_clients(enum talk what, pid_t only, pid_t except)
{
        const struct talk_packet p = say(what, "");

        for (unsigned i = 0; i < n_clients; i++)
                if ((!only || clients[i].pid == only) && clients[i].pid != except)
                        (void)send_packet(clients[i].fd, &p, NULL, 0);
}

static void answer_control(int control, const struct talk_packet *order)
{
        struct talk_packet p = say(TALK_ANSWER, "");
        size_t used = 0;

        if (strncmp(order->text, "terminate", 9) == 0)
                tell_clients(TALK_TERMINATED, order->pid, 0);
        else
                for (unsigned i = 0; i < n_clients; i++)
                        used += (size_t)snprintf(p.text + used, sizeof(p.text) - used, "%d\n",
                                                 (int)clients[i].pid);
        (void)send_packet(control, &p, NULL, 0);
}

/* Serves until the control daemon is gone and no client is left. */
static int serve_clients(void)
{
        int control = SERVER_FD;

        (void)prctl(PR_SET_NAME, SERVER);
        while (control >= 0 || n_clients > 0) {
                struct pollfd p[1 + TALK_CLIENTS] = {{.fd = control, .events = POLLIN}};
                const unsigned n = n_clients;
                struct talk_packet said;
                int fd;

                for (unsigned i = 0; i < n; i++)
                        p[1 + i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
                if (poll(p, 1 + n, -1) < 0)
                        continue;
                for (unsigned i = n; i-- > 0;) {
                        if (!p[1 + i].revents)
                                continue;
                        if (!receive_packet(clients[i].fd, &said, &fd))
                                remove_client(i);
                        else if (said.what == TALK_FAULT)
                                tell_clients(TALK_FAULT, 0, clients[i].pid);
                }
                if (!p[0].revents)
                        continue;
                if (!receive_packet(control, &said, &fd)) {
                        (void)close(control);
                        control = -1;
                } else if (said.what == TALK_CLIENT && fd >= 0) {
                        add_client(fd, said.pid);
                } else {
                        answer_control(control, &said);
                }
        }
        return EXIT_SUCCESS;
}

/* ---- the control daemon ---- */

static struct {
        pid_t pid;
        int fd;
} server = {.fd = -1};

static void forget_server(void)
{
        if (server.fd < 0)
                return;
        (void)close(server.fd);
        (void)kill(server.pid, SIGKILL);
        (void)waitpid(server.pid, NULL, 0);
        server.fd = -1;
}

static bool need_server(void)
{
        int fds[2];

        if (server.fd >= 0)
                return true;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
                return false;
        server.pid = fork();
        if (server.pid == 0) {
                char *argv[] = {(char *)SERVER, NULL};

                if (dup2(fds[1], SERVER_FD) == SERVER_FD) {
                        closefrom(SERVER_FD + 1);
                        (void)execv("/proc/self/exe", argv);
                }
                _exit(EXIT_FAILURE);
        }
        (void)close(fds[1]);
        server.fd = fds[0];
        return server.pid > 0;
}

static struct talk_packet ask_server(const char *what, pid_t pid)
{
        struct talk_packet p = say(TALK_ORDER, what);
        int none;

        p.pid = pid;
        if (server.fd < 0 || !send_packet(server.fd, &p, NULL, 0) ||
            !receive_packet(server.fd, &p, &none))
                return say(TALK_ANSWER, "");
        return p;
}

/* Returns false for the order to quit. */
static bool obey(const char *order, struct talk_packet *ret_answer)
{
        int of, whom;
        char text[32] = "";

        *ret_answer = say(TALK_ANSWER, "Unknown command\n");
        if (strncmp(order, "get_server_list", 15) == 0) {
                if (server.fd >= 0)
                        (void)snprintf(text, sizeof(text), "%d\n", (int)server.pid);
                *ret_answer = say(TALK_ANSWER, text);
        } else if (sscanf(order, "get_client_list %d", &of) == 1) {
                *ret_answer = of == server.pid ? ask_server("list", 0)
                                               : say(TALK_ANSWER, "Server not found\n");
        } else if (sscanf(order, "terminate_client %d %d", &of, &whom) == 2) {
                *ret_answer = of == server.pid ? ask_server("terminate", whom)
                                               : say(TALK_ANSWER, "Server not found\n");
        } else if (strcmp(order, "get_default_active_thread_percentage") == 0) {
                *ret_answer = say(TALK_ANSWER, "100.0\n");
        } else if (strncmp(order, "quit", 4) == 0) {
                *ret_answer = say(TALK_ANSWER, "");
                return false;
        }
        return true;
}

/* Handles one connection: a program that stays, or an order. */
static bool handle(int fd)
{
        struct talk_packet p = {0}, answer;
        struct ucred who;
        socklen_t size = sizeof(who);
        bool goes_on = true;
        int none;

        if (!receive_packet(fd, &p, &none) ||
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
                return true;
        if (p.what == TALK_CLIENT && need_server()) {
                p.pid = who.pid;
                (void)send_packet(server.fd, &p, &fd, 1);
        } else if (p.what == TALK_ORDER) {
                goes_on = obey(p.text, &answer);
                if (!goes_on)
                        forget_server();
                (void)send_packet(fd, &answer, NULL, 0);
        }
        return goes_on;
}

static bool address(struct sockaddr_un *ret)
{
        const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");

        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        return snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/control",
                        dir && *dir ? dir : "/tmp/nvidia-mps") < (int)sizeof(ret->sun_path);
}

/* Programs connect as soon as the socket has its name, so it gets the name only when it listens. */
static bool listen_at(int fd, const struct sockaddr_un *sa)
{
        struct sockaddr_un first = {.sun_family = AF_UNIX};
        bool ok;

        if (snprintf(first.sun_path, sizeof(first.sun_path), "%s.%d", sa->sun_path,
                     (int)getpid()) >= (int)sizeof(first.sun_path))
                return false;
        (void)unlink(first.sun_path);
        ok = bind(fd, (struct sockaddr *)&first, sizeof(first)) == 0 &&
             listen(fd, SOMAXCONN) == 0 && link(first.sun_path, sa->sun_path) == 0;
        (void)unlink(first.sun_path);
        return ok;
}

static int open_socket(const struct sockaddr_un *sa, bool listens)
{
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -1;
        if (listens ? listen_at(fd, sa)
                    : connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0)
                return fd;
        (void)close(fd);
        return -1;
}

static int control(struct sockaddr_un *sa)
{
        const int listening = open_socket(sa, true);
        bool goes_on = true;

        if (listening < 0) {
                (void)fprintf(stderr, "An instance of this daemon is already running\n");
                return EXIT_FAILURE;
        }
        while (goes_on) {
                struct pollfd p[2] = {{.fd = listening, .events = POLLIN}, {.fd = server.fd}};
                int fd;

                if (poll(p, 2, -1) < 0)
                        continue;
                if (server.fd >= 0 && p[1].revents)
                        forget_server(); /* the server died; the next program gets another */
                if (!p[0].revents)
                        continue;
                fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0)
                        continue;
                goes_on = handle(fd);
                (void)close(fd);
        }
        (void)unlink(sa->sun_path);
        return EXIT_SUCCESS;
}

static int order(struct sockaddr_un *sa)
{
        struct talk_packet p;
        char line[TALK_TEXT];
        int fd, none;

        while (fgets(line, sizeof(line), stdin)) {
                line[strcspn(line, "\n")] = '\0';
                p = say(TALK_ORDER, line);
                fd = open_socket(sa, false);
                if (fd < 0 || !send_packet(fd, &p, NULL, 0) || !receive_packet(fd, &p, &none)) {
                        (void)printf("Cannot find MPS control daemon process\n");
                        return EXIT_FAILURE;
                }
                (void)close(fd);
                (void)printf("%s", p.text);
        }
        return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
        struct sockaddr_un sa;

        if (strcmp(argv[0], SERVER) == 0)
                return serve_clients();
        if (!address(&sa))
                return EXIT_FAILURE;
        return argc == 2 && strcmp(argv[1], "-f") == 0 ? control(&sa) : order(&sa);
}
