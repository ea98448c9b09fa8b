/* main.c: owns the command line of sublet-webhook: one table drives parsing and help. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/gnutls.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/standard.h"
#include "base/units.h"
#include "kubernetes/serve/certificate.h"
#include "kubernetes/serve/serve_loop.h"
#include "kubernetes/webhook/review.h"

#define LINGER_MAX_NS (300 * NSEC_PER_SEC)

#define AT(field) offsetof(struct options, field)

struct options {
        struct server_options server;
        struct review_options review;
        const char *certificate, *key, *linger;
};

static const struct option_row rows[] = {
        {"listen", "ADDR:PORT",
         "where reviews are served; without ADDR, on all\n"
         "addresses (:8443)",
         options_set_text, AT(server.listen), NULL},
        {"certificate", "FILE",
         "the certificate for TLS, and those that signed it (PEM);\n"
         "a changed file is used without a restart",
         options_set_text, AT(certificate), NULL},
        {"key", "FILE", "the certificate's key (PEM)", options_set_text, AT(key), NULL},
        {"client-ca", "FILE",
         "answer only clients with a certificate that these authorities\n"
         "have signed (PEM), probes apart; read once",
         options_set_text, AT(server.client_ca), NULL},
        {"resource-from", "NAME", "the resource that is replaced (nvidia.com/gpu)",
         options_set_text, AT(review.from), NULL},
        {"resource-to", "NAME", "what it becomes (sublet.dev/gpu)", options_set_text, AT(review.to),
         NULL},
        {"linger", "DURATION",
         "after SIGTERM, go on for so long, until the API server\n"
         "knows that the webhook is not ready (0)",
         options_set_text, AT(linger), NULL},
        {0},
};

static void print_help(const struct options_table *t)
{
        (void)printf("usage: sublet-webhook --certificate FILE --key FILE [OPTION]...\n\n"
                     "Lets pods that ask for a whole GPU share one: answers the reviews of\n"
                     "Kubernetes' API server, at /mutate for pods that opted in and at\n"
                     "/mutate-all for all that did not opt out.\n\n");
        options_print(t);
        (void)printf("\nExit status: 0 stopped, 1 failed, 2 bad usage.\n");
}

static const struct options_table table = {"sublet-webhook", rows, 21, print_help};

/* A name without a vendor is Kubernetes' own, such as cpu. */
static int check_options(struct options *o)
{
        if (!o->certificate || !o->key)
                return options_fail(&table, "--certificate and --key are needed");
        if (!strchr(o->review.from, '/') || !strchr(o->review.to, '/'))
                return options_fail(&table, "a resource has a name such as nvidia.com/gpu");
        if (strcmp(o->review.from, o->review.to) == 0)
                return options_fail(&table, "--resource-from and --resource-to are the same");
        if (units_parse_duration(o->linger, &o->server.linger_ns) < 0 ||
            o->server.linger_ns > LINGER_MAX_NS)
                return options_fail(&table, "--linger is a time such as 5s, of at most 5min");
        return 0;
}

/* ---- what is served ---- */

static int mutate(const char *text, size_t size, void *userdata, char **ret_answer,
                  char error[static REQUESTS_ERROR_MAX])
{
        _Static_assert(REVIEW_ERROR_MAX <= REQUESTS_ERROR_MAX, "a sentence would be cut");

        return review_answer(text, size, userdata, ret_answer, error);
}

static int mutate_all(const char *text, size_t size, void *userdata, char **ret_answer,
                      char error[static REQUESTS_ERROR_MAX])
{
        struct review_options options = *(const struct review_options *)userdata;

        options.all = true;
        return review_answer(text, size, &options, ret_answer, error);
}

static const struct requests_door doors[] = {{"/mutate", mutate}, {"/mutate-all", mutate_all}};

int main(int argc, char *argv[])
{
        struct options o = {
                .server = {.listen = ":8443"},
                .review = {.from = "nvidia.com/gpu", .to = "sublet.dev/gpu"},
                .linger = "0",
        };
        const struct requests_service service = {
                .program = "the webhook",
                .one = "a review",
                .many = "reviews",
                .paths = "/mutate, /mutate-all, /healthz and /readyz",
                .body_max_mib = 3, /* the API server's own bound of a request */
                .doors = doors,
                .n_doors = ARRAY_SIZE(doors),
                .userdata = &o.review,
        };
        char error[CERTIFICATE_ERROR_MAX];
        sd_event *event = NULL;
        int r;

        standard_open();
        log_open("sublet-webhook", LOG_LEVEL_INFO);
        r = options_parse(&table, &o, argc, argv, error, sizeof(error));
        if (r)
                return r == OPTIONS_HELPED ? EXIT_SUCCESS : r;
        r = check_options(&o);
        if (r)
                return r;
        server_block_signals();
        if (certificate_open(o.certificate, o.key, error) < 0) {
                (void)fprintf(stderr, "sublet-webhook: %s\n", error);
                return EXIT_FAILURE;
        }
        r = sd_event_new(&event);
        if (r < 0)
                (void)snprintf(error, sizeof(error), "cannot start: %s", strerror(-r));
        else
                r = server_run(event, &o.server, &service, error);
        (void)sd_event_unref(event);
        certificate_close();
        if (r < 0)
                (void)fprintf(stderr, "sublet-webhook: %s\n", error);
        return r == 0 ? EXIT_SUCCESS : r == -EINVAL ? OPTIONS_EXIT_USAGE : EXIT_FAILURE;
}
