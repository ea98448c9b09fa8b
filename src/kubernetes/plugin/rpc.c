/* rpc.c: owns gRPC: its completion queue, the thread that takes from it, the server's socket and
 * the calls. Must never touch a call outside of the loop's thread.
 * Why: docs/decisions.md, "The device plugin is one loop, and gRPC's threads end at a pipe" and
 * "The device plugin makes its socket itself". */
#include "kubernetes/plugin/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "kubernetes/plugin/peers.h"

#define CALLS_MAX    1024u /* calls at once; more wait in gRPC */
#define CALLS_OF_ONE 128u  /* calls of one process: kubelet starts as many containers at once */
#define READ_BYTES   16384 /* most that gRPC reads at once: each ping in it takes kilobytes */

/* What gRPC was asked to do. Its address is the tag of the completion. */
struct op {
        void (*done)(struct op *op, bool ok);
        void *owner;
};

/* A completion on its way through the pipe; smaller than PIPE_BUF, so it is never cut. */
struct done {
        struct op *op;
        bool ok;
};

struct question {
        struct op answered;
        grpc_channel *channel; /* NULL: no question is under way */
        grpc_call *call;
        grpc_byte_buffer *request, *answer;
        grpc_metadata_array initial, trailing;
        grpc_status_code code;
        grpc_slice details;
        void (*told)(grpc_status_code code, const char *sentence, void *userdata);
        void *userdata;
};

struct rpc {
        sd_event *loop;
        const struct rpc_method *methods;
        void *userdata;
        grpc_completion_queue *queue;
        grpc_server *server;
        pthread_t pump;
        int done_in, done_out; /* ends of the pipe: that of the pump, that of the loop */
        sd_event_source *on_done, *on_peer, *on_rest;
        struct peers *peers;
        int listener;
        char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
        dev_t device;
        ino_t inode;
        struct rpc_call *calls;
        unsigned n_calls;
        bool accepting; /* gRPC was asked for the next call */
        bool ending, ended;
        struct op stopped;
        struct question question;
};

struct rpc_call {
        struct rpc *rpc;
        struct rpc_call *before, *after;
        grpc_call *call;
        grpc_call_details details;
        grpc_metadata_array metadata;
        grpc_byte_buffer *request;
        grpc_byte_buffer *sending, *waiting; /* the message under way, and the one after it */
        grpc_slice sentence;
        int cancelled;
        const struct rpc_method *method;
        void (*over)(struct rpc_call *c, void *userdata);
        struct op accepted, received, sent, closed;
        pid_t process;    /* the process that calls; 0: it is not known */
        unsigned pending; /* completions that are still to come */
        bool begun, answered, is_over;
};

static struct op op_make(void (*done)(struct op *op, bool ok), void *owner)
{
        return (struct op){.done = done, .owner = owner};
}

static grpc_byte_buffer *buffer_of(const void *bytes, size_t n)
{
        grpc_slice slice = grpc_slice_from_copied_buffer(bytes ? bytes : "", n);
        grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);

        grpc_slice_unref(slice);
        return buffer;
}

static void buffer_free(grpc_byte_buffer **buffer)
{
        if (*buffer)
                grpc_byte_buffer_destroy(*buffer);
        *buffer = NULL;
}

/* ---- the calls ---- */

static void accept_call(struct rpc *r);

static void call_free(struct rpc_call *c)
{
        struct rpc *r = c->rpc;

        if (c->before)
                c->before->after = c->after;
        else
                r->calls = c->after;
        if (c->after)
                c->after->before = c->before;
        r->n_calls--;
        buffer_free(&c->request);
        buffer_free(&c->sending);
        buffer_free(&c->waiting);
        grpc_slice_unref(c->sentence);
        grpc_call_details_destroy(&c->details);
        grpc_metadata_array_destroy(&c->metadata);
        if (c->call)
                grpc_call_unref(c->call);
        free(c);
        accept_call(r);
}

/* Counts a completion of the call. Returns false if it was the last one, and the call is gone. */
static bool call_done(struct rpc_call *c)
{
        if (--c->pending > 0)
                return true;
        call_free(c);
        return false;
}

/* Asks gRPC to do these things. The call ends if gRPC refuses to. */
static void call_begin(struct rpc_call *c, const grpc_op *ops, size_t n, struct op *tag)
{
        c->pending++;
        if (grpc_call_start_batch(c->call, ops, n, tag, NULL) == GRPC_CALL_OK)
                return;
        c->pending--;
        (void)grpc_call_cancel(c->call, NULL);
}

static unsigned add_begin(struct rpc_call *c, grpc_op *ops)
{
        if (c->begun)
                return 0;
        c->begun = true;
        ops[0] = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
        return 1;
}

static grpc_op message_op(grpc_byte_buffer *message)
{
        return (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data = {.send_message = {message}}};
}

static grpc_op status_op(struct rpc_call *c, grpc_status_code code)
{
        return (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
                         .data = {.send_status_from_server = {.status = code,
                                                              .status_details = &c->sentence}}};
}

void rpc_answer(struct rpc_call *c, const void *bytes, size_t n)
{
        grpc_op ops[3];
        unsigned k;

        if (c->answered)
                return;
        c->answered = true;
        c->sending = buffer_of(bytes, n);
        k = add_begin(c, ops);
        ops[k++] = message_op(c->sending);
        ops[k++] = status_op(c, GRPC_STATUS_OK);
        call_begin(c, ops, k, &c->sent);
}

void rpc_refuse(struct rpc_call *c, grpc_status_code code, const char *sentence)
{
        grpc_op ops[2];
        unsigned k;

        if (c->answered)
                return;
        c->answered = true;
        grpc_slice_unref(c->sentence);
        c->sentence = grpc_slice_from_copied_string(sentence);
        k = add_begin(c, ops);
        ops[k++] = status_op(c, code);
        call_begin(c, ops, k, &c->sent);
}

static void send_waiting(struct rpc_call *c)
{
        grpc_op ops[2];
        unsigned k = add_begin(c, ops);

        c->sending = TAKE_PTR(c->waiting);
        ops[k++] = message_op(c->sending);
        call_begin(c, ops, k, &c->sent);
}

void rpc_stream(struct rpc_call *c, const void *bytes, size_t n)
{
        buffer_free(&c->waiting);
        c->waiting = buffer_of(bytes, n);
        if (!c->sending) /* gRPC takes one message at a time */
                send_waiting(c);
}

void rpc_on_over(struct rpc_call *c, void (*over)(struct rpc_call *c, void *userdata))
{
        c->over = over;
}

static void on_sent(struct op *op, bool ok)
{
        struct rpc_call *c = op->owner;

        buffer_free(&c->sending);
        if (call_done(c) && ok && c->waiting && !c->is_over)
                send_waiting(c);
}

static void on_closed(struct op *op, bool ok)
{
        struct rpc_call *c = op->owner;

        c->is_over = true;
        if (c->over)
                c->over(c, c->rpc->userdata);
        c->over = NULL;
        (void)call_done(c);
}

pid_t rpc_caller(const struct rpc_call *c)
{
        return c->process;
}

static void serve(struct rpc_call *c)
{
        grpc_byte_buffer_reader reader;
        grpc_slice all;

        /* kubelet compresses nothing, and a kilobyte could become a megabyte. */
        if (c->request->data.raw.compression != GRPC_COMPRESS_NONE ||
            !grpc_byte_buffer_reader_init(&reader, c->request)) {
                rpc_refuse(c, GRPC_STATUS_INVALID_ARGUMENT, "the message cannot be read");
                return;
        }
        all = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
        c->method->serve(c, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all), c->rpc->userdata);
        grpc_slice_unref(all);
}

static void on_received(struct op *op, bool ok)
{
        struct rpc_call *c = op->owner;

        if (ok && !c->is_over && !c->rpc->ending) {
                if (c->request)
                        serve(c);
                else
                        rpc_refuse(c, GRPC_STATUS_INVALID_ARGUMENT, "the call has no message");
        }
        (void)call_done(c);
}

static const struct rpc_method *find_method(const struct rpc *r, const grpc_slice *name)
{
        for (const struct rpc_method *m = r->methods; m->name; m++)
                if (grpc_slice_str_cmp(*name, m->name) == 0)
                        return m;
        return NULL;
}

/* Finds out which process calls. False: the process has too many calls, and loses its connection.
 * Otherwise refusals would pile up there if it reads none. */
static bool admit(struct rpc_call *c)
{
        char *peer = grpc_call_get_peer(c->call);
        unsigned n = 0;

        c->process = peers_process(c->rpc->peers, peer);
        for (const struct rpc_call *one = c->rpc->calls; one; one = one->after)
                n += one->process == c->process;
        if (n > CALLS_OF_ONE)
                peers_end(c->rpc->peers, peer);
        gpr_free(peer);
        return n <= CALLS_OF_ONE;
}

static void on_accepted(struct op *op, bool ok)
{
        struct rpc_call *c = op->owner;
        struct rpc *r = c->rpc;
        grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
        grpc_op message = {.op = GRPC_OP_RECV_MESSAGE};

        r->accepting = false;
        if (ok && !r->ending) {
                /* Only this operation tells that a caller has left. */
                close.data.recv_close_on_server.cancelled = &c->cancelled;
                call_begin(c, &close, 1, &c->closed);
                c->method = find_method(r, &c->details.method);
                message.data.recv_message.recv_message = &c->request;
                if (!admit(c))
                        (void)grpc_call_cancel(c->call, NULL);
                else if (c->method)
                        call_begin(c, &message, 1, &c->received);
                else
                        rpc_refuse(c, GRPC_STATUS_UNIMPLEMENTED, "there is no such method here");
                accept_call(r);
        }
        (void)call_done(c);
}

/* gRPC answers a call of an unknown method only if somebody takes it, so every call is taken. */
static void accept_call(struct rpc *r)
{
        struct rpc_call *c;

        if (r->accepting || r->ending || r->n_calls >= CALLS_MAX)
                return;
        c = calloc(1, sizeof(*c));
        if (!c)
                return;
        c->rpc = r;
        c->process = -1; /* no process has called yet */
        c->accepted = op_make(on_accepted, c);
        c->received = op_make(on_received, c);
        c->sent = op_make(on_sent, c);
        c->closed = op_make(on_closed, c);
        c->sentence = grpc_empty_slice();
        grpc_call_details_init(&c->details);
        grpc_metadata_array_init(&c->metadata);
        c->after = r->calls;
        if (c->after)
                c->after->before = c;
        r->calls = c;
        r->n_calls++;
        c->pending = 1;
        r->accepting = true;
        if (grpc_server_request_call(r->server, &c->call, &c->details, &c->metadata, r->queue,
                                     r->queue, &c->accepted) != GRPC_CALL_OK) {
                r->ending = true; /* gRPC fails only if it is given something wrong */
                (void)call_done(c);
        }
}

/* ---- the question ---- */

static void question_end(struct question *q)
{
        buffer_free(&q->request);
        buffer_free(&q->answer);
        grpc_metadata_array_destroy(&q->initial);
        grpc_metadata_array_destroy(&q->trailing);
        grpc_slice_unref(q->details);
        grpc_call_unref(q->call);
        grpc_channel_destroy(q->channel);
        *q = (struct question){0};
}

static void on_answered(struct op *op, bool ok)
{
        struct rpc *r = op->owner;
        struct question *q = &r->question;
        void (*told)(grpc_status_code code, const char *sentence, void *userdata) = q->told;
        void *userdata = q->userdata;
        const grpc_status_code code = q->code;
        char sentence[RPC_SENTENCE_MAX];
        const size_t n = MIN(GRPC_SLICE_LENGTH(q->details), sizeof(sentence) - 1);

        memcpy(sentence, GRPC_SLICE_START_PTR(q->details), n);
        sentence[n] = '\0';
        question_end(q);
        if (!r->ending)
                told(code, sentence, userdata);
}

int rpc_ask(struct rpc *r, const char *path, const char *method, const void *bytes, size_t n,
            unsigned timeout_s,
            void (*told)(grpc_status_code code, const char *sentence, void *userdata),
            void *userdata)
{
        struct question *q = &r->question;
        char target[sizeof(r->path) + 8], local_pool[] = GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL;
        /* By default, channels share connections, and the wait after a failed one. A kubelet that
         * is back would then be asked too late. */
        grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = local_pool, .value.integer = 1};
        const grpc_channel_args args = {.num_args = 1, .args = &arg};
        grpc_channel_credentials *insecure;
        grpc_slice name;
        grpc_op ops[6] = {
                {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
                {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};

        if (q->channel)
                return -EBUSY;
        (void)snprintf(target, sizeof(target), "unix:%s", path);
        insecure = grpc_insecure_credentials_create();
        q->channel = grpc_channel_create(target, insecure, &args);
        grpc_channel_credentials_release(insecure);
        name = grpc_slice_from_copied_string(method);
        q->call = grpc_channel_create_call(
                q->channel, NULL, GRPC_PROPAGATE_DEFAULTS, r->queue, name, NULL,
                gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                             gpr_time_from_seconds((int64_t)timeout_s, GPR_TIMESPAN)),
                NULL);
        grpc_slice_unref(name);
        q->told = told;
        q->userdata = userdata;
        q->answered = op_make(on_answered, r);
        q->request = buffer_of(bytes, n);
        q->details = grpc_empty_slice();
        grpc_metadata_array_init(&q->initial);
        grpc_metadata_array_init(&q->trailing);
        ops[1].data.send_message.send_message = q->request;
        ops[3].data.recv_initial_metadata.recv_initial_metadata = &q->initial;
        ops[4].data.recv_message.recv_message = &q->answer;
        ops[5].data.recv_status_on_client.trailing_metadata = &q->trailing;
        ops[5].data.recv_status_on_client.status = &q->code;
        ops[5].data.recv_status_on_client.status_details = &q->details;
        if (grpc_call_start_batch(q->call, ops, ARRAY_SIZE(ops), &q->answered, NULL) !=
            GRPC_CALL_OK) {
                question_end(q);
                return -EIO;
        }
        return 0;
}

/* ---- the socket ---- */

static int on_peer(sd_event_source *source, int fd, uint32_t events, void *userdata);

/* Accepts peers again, after a rest: too many descriptors were open, and waiting peers keep the
 * socket readable. */
static int on_rest(sd_event_source *source, uint64_t usec, void *userdata)
{
        struct rpc *r = userdata;

        if (r->on_peer)
                (void)sd_event_source_set_enabled(r->on_peer, SD_EVENT_ON);
        r->on_rest = sd_event_source_disable_unref(r->on_rest);
        return 0;
}

static int on_peer(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
        struct rpc *r = userdata;
        grpc_server_credentials *insecure;
        const int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (peer < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
                (void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
                (void)sd_event_add_time_relative(r->loop, &r->on_rest, CLOCK_MONOTONIC, 200000, 0,
                                                 on_rest, r);
        }
        if (peer < 0)
                return 0;
        if (peers_add(r->peers, peer) < 0) {
                (void)close(peer);
                return 0;
        }
        insecure = grpc_insecure_server_credentials_create();
        grpc_server_add_channel_from_fd(r->server, peer, insecure);
        grpc_server_credentials_release(insecure);
        return 0;
}

bool rpc_is_listening(const struct rpc *r)
{
        struct stat st;

        return r->listener >= 0 && lstat(r->path, &st) == 0 && st.st_dev == r->device &&
               st.st_ino == r->inode;
}

static void stop_listening(struct rpc *r)
{
        if (rpc_is_listening(r))
                (void)unlink(r->path);
        r->on_peer = sd_event_source_disable_unref(r->on_peer);
        r->on_rest = sd_event_source_disable_unref(r->on_rest);
        if (r->listener >= 0)
                (void)close(r->listener);
        r->listener = -EBADF;
}

/* The socket is our own, and gRPC gets the connections. At a server's end gRPC would remove the
 * file at its path, also if that is another server's by then. */
int rpc_listen(struct rpc *r, const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int e;

        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        stop_listening(r);
        memcpy(address.sun_path, path, strlen(path) + 1);
        memcpy(r->path, address.sun_path, sizeof(r->path));
        if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
                (void)unlink(path); /* a killed plugin has left it */
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        if (listen(fd, SOMAXCONN) < 0 || lstat(path, &st) < 0)
                return -errno;
        e = sd_event_add_io(r->loop, &r->on_peer, fd, EPOLLIN, on_peer, r);
        if (e < 0)
                return e;
        r->device = st.st_dev;
        r->inode = st.st_ino;
        r->listener = TAKE_FD(fd);
        return 0;
}

/* ---- from gRPC's queue to the loop ---- */

static void *pump(void *userdata)
{
        struct rpc *r = userdata;

        for (;;) {
                const grpc_event e = grpc_completion_queue_next(
                        r->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
                struct done d = {.op = e.tag, .ok = e.success};

                if (e.type == GRPC_QUEUE_SHUTDOWN)
                        break;
                while (e.type == GRPC_OP_COMPLETE && write(r->done_in, &d, sizeof(d)) < 0 &&
                       errno == EINTR)
                        ;
        }
        (void)close(r->done_in);
        return NULL;
}

/* Takes one completion. 1, or 0: there is none now (or the pump has ended). */
static int take_done(struct rpc *r)
{
        struct done d;
        ssize_t n;

        do
                n = read(r->done_out, &d, sizeof(d));
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof(d))
                return 0;
        d.op->done(d.op, d.ok);
        return 1;
}

static int on_done(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
        struct rpc *r = userdata;

        for (unsigned n = 0; n < 64 && take_done(r); n++)
                ;
        return 0;
}

static void on_stopped(struct op *op, bool ok)
{
        struct rpc *r = op->owner;

        r->ended = true;
}

/* Peers can make gRPC write lines, which help only to find a mistake. */
static void on_grpcs_line(gpr_log_func_args *args)
{
        log_debug("gRPC: %s", args->message);
}

static grpc_server *make_server(void)
{
        grpc_arg list[] = {
                {.type = GRPC_ARG_INTEGER,
                 .key = (char *)GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE,
                 .value.integer = READ_BYTES},
                {.type = GRPC_ARG_INTEGER,
                 .key = (char *)GRPC_ARG_HTTP2_MAX_PING_STRIKES,
                 .value.integer = 0},
                {.type = GRPC_ARG_INTEGER,
                 .key = (char *)GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION,
                 .value.integer = 0},
                {.type = GRPC_ARG_INTEGER,
                 .key = (char *)GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                 .value.integer = 1 << GRPC_COMPRESS_NONE},
        };
        const grpc_channel_args args = {ARRAY_SIZE(list), list};

        return grpc_server_create(&args, NULL);
}

int rpc_new(sd_event *loop, const struct rpc_method *methods, void *userdata, struct rpc **ret)
{
        struct rpc *r = calloc(1, sizeof(*r));
        int ends[2], e;

        if (!r)
                return -ENOMEM;
        *r = (struct rpc){
                .loop = loop, .methods = methods, .userdata = userdata, .listener = -EBADF};
        e = peers_new(loop, &r->peers);
        if (e < 0)
                goto free_rpc;
        if (pipe2(ends, O_CLOEXEC) < 0) {
                e = -errno;
                goto free_rpc;
        }
        r->done_out = ends[0];
        r->done_in = ends[1];
        (void)fcntl(r->done_out, F_SETFL, O_NONBLOCK); /* only the pump's end waits */
        e = sd_event_add_io(loop, &r->on_done, r->done_out, EPOLLIN, on_done, r);
        if (e < 0)
                goto close_pipe;
        gpr_set_log_function(on_grpcs_line);
        grpc_init();
        r->queue = grpc_completion_queue_create_for_next(NULL);
        r->server = make_server();
        grpc_server_register_completion_queue(r->server, r->queue, NULL);
        grpc_server_start(r->server);
        e = -pthread_create(&r->pump, NULL, pump, r);
        if (e < 0)
                goto end_grpc;
        accept_call(r);
        *ret = r;
        return 0;

end_grpc:
        grpc_server_destroy(r->server);
        grpc_completion_queue_destroy(r->queue);
        grpc_shutdown();
        (void)sd_event_source_disable_unref(r->on_done);
close_pipe:
        (void)close(r->done_in);
        (void)close(r->done_out);
free_rpc:
        peers_free(r->peers);
        free(r);
        return e;
}

void rpc_free(struct rpc *r)
{
        if (!r)
                return;
        stop_listening(r);
        r->ending = true;
        r->on_done = sd_event_source_disable_unref(r->on_done);
        (void)fcntl(r->done_out, F_SETFL, 0); /* from here on we wait for each completion */
        r->stopped = op_make(on_stopped, r);
        grpc_server_shutdown_and_notify(r->server, r->queue, &r->stopped);
        grpc_server_cancel_all_calls(r->server);
        if (r->question.channel)
                (void)grpc_call_cancel(r->question.call, NULL);
        while ((!r->ended || r->calls || r->question.channel) && take_done(r))
                ;
        grpc_server_destroy(r->server);
        grpc_completion_queue_shutdown(r->queue);
        (void)pthread_join(r->pump, NULL);
        grpc_completion_queue_destroy(r->queue);
        (void)close(r->done_out);
        grpc_shutdown();
        peers_free(r->peers);
        free(r);
}
