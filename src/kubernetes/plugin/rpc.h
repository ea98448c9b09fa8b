/* rpc.h: gRPC as the device plugin needs it: serves methods on a UNIX socket, and asks one question
 * at a time of another one.
 *
 * A thread of its own takes what gRPC completes and passes it on through a pipe. So everything here
 * happens in the loop's thread, and the callers need no locks. gRPC has threads of its own, too: no
 * fork() after rpc_new(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <grpc/status.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define RPC_SENTENCE_MAX 512

struct rpc;
struct rpc_call;

struct rpc_method {
        const char *name; /* "/package.Service/Method" */
        /* The request is valid until this returns. The call must be answered, refused or streamed
         * to, now or later; it stays valid until rpc_on_over() says that it is over. */
        void (*serve)(struct rpc_call *c, const uint8_t *request, size_t n, void *userdata);
};

/* The methods end with an entry without a name, and outlive the rpc. 0 or -errno. */
int rpc_new(sd_event *loop, const struct rpc_method *methods, void *userdata, struct rpc **ret);
/* Ends all calls, removes the socket and waits for gRPC's end. NULL is a no-op. */
void rpc_free(struct rpc *r);

/* Serves at this path; an earlier socket there is replaced. Calls under way go on. 0 or -errno. */
int rpc_listen(struct rpc *r, const char *path);
/* True if the socket that rpc_listen() made is still at its path. */
bool rpc_is_listening(const struct rpc *r);

/* Returns the process that calls; 0: it is not known. */
pid_t rpc_caller(const struct rpc_call *c);
void rpc_answer(struct rpc_call *c, const void *bytes, size_t n);
void rpc_refuse(struct rpc_call *c, grpc_status_code code, const char *sentence);
/* Sends one more message of an answer that never ends. Of messages that wait, only the last is
 * sent. */
void rpc_stream(struct rpc_call *c, const void *bytes, size_t n);
/* over: called once, when the call has ended in any way. The call is not valid after it. */
void rpc_on_over(struct rpc_call *c, void (*over)(struct rpc_call *c, void *userdata));

/* Asks a method of the server at this socket. told: called once, with GRPC_STATUS_OK or with the
 * reason. 0, or -EBUSY: another question is under way; then told is not called. */
int rpc_ask(struct rpc *r, const char *path, const char *method, const void *bytes, size_t n,
            unsigned timeout_s,
            void (*told)(grpc_status_code code, const char *sentence, void *userdata),
            void *userdata);
