/* socket.c: owns what an address to listen at looks like. Must never wait. */
#include "kubernetes/serve/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"

#define QUEUE_MAX 4096

/* Reads "ADDR:PORT", "[ADDR]:PORT" or ":PORT". 0 or -EINVAL. */
static int read_address(const char *text, int family, struct addrinfo **ret)
{
        const struct addrinfo wanted = {.ai_family = family,
                                        .ai_socktype = SOCK_STREAM,
                                        .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
        const char *colon = strrchr(text, ':');
        char host[64];
        size_t length;

        if (!colon || !colon[1])
                return -EINVAL;
        length = (size_t)(colon - text);
        if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
                text++;
                length -= 2;
        }
        if (length >= sizeof(host))
                return -EINVAL;
        memcpy(host, text, length);
        host[length] = '\0';
        return getaddrinfo(length ? host : NULL, colon + 1, &wanted, ret) == 0 ? 0 : -EINVAL;
}

static int listen_on(const struct addrinfo *a, int *ret)
{
        _cleanup_close_ int fd =
                socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        const int one = 1, zero = 0;

        if (fd < 0)
                return -errno;
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (a->ai_family == AF_INET6)
                (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
        if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, QUEUE_MAX) < 0)
                return -errno;
        *ret = TAKE_FD(fd);
        return 0;
}

/* Without an address, listens at all of both families, or of IPv4 if the kernel has no IPv6. */
int socket_open(const char *text, int *ret)
{
        const int families[] = {AF_INET6, AF_INET};
        int r = -EINVAL;

        for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
                struct addrinfo *a;

                if (read_address(text, families[i], &a) < 0)
                        continue;
                r = listen_on(a, ret);
                freeaddrinfo(a);
                if (r != -EAFNOSUPPORT && r != -EADDRNOTAVAIL)
                        return r;
        }
        return r;
}

void socket_say_where(int fd, const char *many)
{
        struct sockaddr_storage at;
        socklen_t size = sizeof(at);
        char host[64], port[16];

        if (getsockname(fd, (struct sockaddr *)&at, &size) == 0 &&
            getnameinfo((struct sockaddr *)&at, size, host, sizeof(host), port, sizeof(port),
                        NI_NUMERICHOST | NI_NUMERICSERV) == 0)
                log_info("serves %s on %s port %s", many, host, port);
}
