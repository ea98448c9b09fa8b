/* main.c: owns the command line of sublet-webhook: one table drives parsing and help. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/gnutls.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/units.h"
#include "kubernetes/webhook/certificate.h"
#include "kubernetes/webhook/server.h"

#define EXIT_USAGE    2
#define LINGER_MAX_NS (300 * NSEC_PER_SEC)

struct options {
        struct server_options server;
        const char *certificate, *key, *linger;
        bool help, version;
};

struct option_row {
        const char *name;
        const char *argument; /* placeholder of the value; NULL: the option takes no value */
        const char *help;
        size_t at; /* where the value goes, in struct options */
};

static const struct option_row rows[] = {
        {"listen", "ADDR:PORT",
         "where reviews are served; without ADDR, on all\n"
         "addresses (:8443)",
         offsetof(struct options, server.listen)},
        {"certificate", "FILE",
         "the certificate for TLS, and those that signed it (PEM);\n"
         "a changed file is used without a restart",
         offsetof(struct options, certificate)},
        {"key", "FILE", "the certificate's key (PEM)", offsetof(struct options, key)},
        {"resource-from", "NAME", "the resource that is replaced (nvidia.com/gpu)",
         offsetof(struct options, server.from)},
        {"resource-to", "NAME", "what it becomes (sublet.dev/gpu)",
         offsetof(struct options, server.to)},
        {"linger", "DURATION",
         "after SIGTERM, go on for so long, until the API server\n"
         "knows that the webhook is not ready (0)",
         offsetof(struct options, linger)},
        {"version", NULL, "print the version", offsetof(struct options, version)},
        {"help", NULL, "print this", offsetof(struct options, help)},
};

static void print_help(void)
{
        (void)printf("usage: sublet-webhook --certificate FILE --key FILE [OPTION]...\n\n"
                     "Lets pods that ask for a whole GPU share one: answers the reviews of\n"
                     "Kubernetes' API server, at /mutate for pods that opted in and at\n"
                     "/mutate-all for all that did not opt out.\n\n");
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                char left[40];
                const char *text = rows[i].help, *end;

                (void)snprintf(left, sizeof(left), "--%s%s%s", rows[i].name,
                               rows[i].argument ? " " : "",
                               rows[i].argument ? rows[i].argument : "");
                while ((end = strchr(text, '\n'))) {
                        (void)printf("  %-21s %.*s\n", left, (int)(end - text), text);
                        left[0] = '\0';
                        text = end + 1;
                }
                (void)printf("  %-21s %s\n", left, text);
        }
        (void)printf("\nExit status: 0 stopped, 1 failed, 2 bad usage.\n");
}

static int usage_error(const char *sentence)
{
        (void)fprintf(stderr, "sublet-webhook: %s\n", sentence);
        return EXIT_USAGE;
}

static const struct option_row *find_row(const char *arg, size_t n)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if (n > 2 && strncmp(arg, "--", 2) == 0 && strlen(rows[i].name) == n - 2 &&
                    strncmp(arg + 2, rows[i].name, n - 2) == 0)
                        return &rows[i];
        return NULL;
}

/* Reads the command line. 0, or EXIT_USAGE after a message. */
static int parse_options(struct options *o, int argc, char *argv[])
{
        char text[256];

        for (int i = 1; i < argc; i++) {
                const char *arg = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i], *value = NULL;
                const size_t n = strcspn(arg, "=");
                const struct option_row *row = find_row(arg, n);

                if (!row) {
                        (void)snprintf(text, sizeof(text),
                                       "unknown %s \"%.100s\": sublet-webhook --help lists what "
                                       "there is",
                                       arg[0] == '-' ? "option" : "argument", arg);
                        return usage_error(text);
                }
                if (arg[n] == '=')
                        value = arg + n + 1;
                else if (row->argument)
                        value = argv[++i]; /* NULL: the command line ends here */
                if (row->argument ? !value || !*value : value != NULL) {
                        (void)snprintf(text, sizeof(text), "--%s %s%s", row->name,
                                       row->argument ? "needs " : "takes no value",
                                       row->argument ? row->argument : "");
                        return usage_error(text);
                }
                if (row->argument)
                        *(const char **)((char *)o + row->at) = value;
                else
                        *(bool *)((char *)o + row->at) = true;
        }
        return 0;
}

/* A name without a vendor is Kubernetes' own, such as cpu. */
static int check_options(struct options *o)
{
        if (!o->certificate || !o->key)
                return usage_error("--certificate and --key are needed");
        if (!strchr(o->server.from, '/') || !strchr(o->server.to, '/'))
                return usage_error("a resource has a name such as nvidia.com/gpu");
        if (strcmp(o->server.from, o->server.to) == 0)
                return usage_error("--resource-from and --resource-to are the same");
        if (units_parse_duration(o->linger, &o->server.linger_ns) < 0 ||
            o->server.linger_ns > LINGER_MAX_NS)
                return usage_error("--linger is a time such as 5s, of at most 5min");
        return 0;
}

int main(int argc, char *argv[])
{
        struct options o = {
                .server = {.listen = ":8443", .from = "nvidia.com/gpu", .to = "sublet.dev/gpu"},
                .linger = "0"};
        char error[CERTIFICATE_ERROR_MAX];
        int r;

        log_open("sublet-webhook", LOG_LEVEL_INFO);
        r = parse_options(&o, argc, argv);
        if (r)
                return r;
        if (o.help || o.version) {
                if (o.help)
                        print_help();
                else
                        (void)printf("sublet-webhook " SUBLET_VERSION "\n");
                return EXIT_SUCCESS;
        }
        r = check_options(&o);
        if (r)
                return r;
        server_block_signals();
        if (certificate_open(o.certificate, o.key, error) < 0) {
                (void)fprintf(stderr, "sublet-webhook: %s\n", error);
                return EXIT_FAILURE;
        }
        r = server_run(&o.server, error);
        certificate_close();
        if (r < 0)
                (void)fprintf(stderr, "sublet-webhook: %s\n", error);
        return r == 0 ? EXIT_SUCCESS : r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
}
