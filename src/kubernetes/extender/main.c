/* main.c: owns the command line of sublet-extender: one table drives parsing and help. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/standard.h"
#include "base/units.h"
#include "kubernetes/api/api_options.h"
#include "kubernetes/extender/extender.h"
#include "kubernetes/serve/certificate.h"

#define LINGER_MAX_NS (300 * NSEC_PER_SEC)
#define DEVICES_MOST  1000u

#define AT(field) offsetof(struct options, field)

struct options {
        struct extender_options extender;
        const char *certificate, *key;
};

static int set_resource(const struct option_row *row, void *field, const char *value)
{
        return strchr(value, '/') ? options_set_text(row, field, value) : -EINVAL;
}

static int set_linger(const struct option_row *row, void *field, const char *value)
{
        uint64_t *linger_ns = field;

        return units_parse_duration(value, linger_ns) < 0 || *linger_ns > LINGER_MAX_NS ? -EINVAL
                                                                                        : 0;
}

static const char *const prefer_words[] = {
        [PREFER_PACK] = "pack", [PREFER_SPREAD] = "spread", NULL};

static const struct option_row rows[] = {
        {"jobs", "DIR",
         "the job files that sublet measure wrote: the pods' annotation\n"
         "sublet.dev/job: NAME means NAME.json; changed files are read again",
         options_set_text, AT(extender.jobs), NULL},
        {"model", "FILE",
         "what sublet train wrote for the nodes' card; without it, only\n"
         "jobs that do not fit a card together are predicted",
         options_set_text, AT(extender.model), NULL},
        {"qos", "PART",
         "the part of its progress alone that a job keeps at least,\n"
         "unless its pod says sublet.dev/qos",
         options_set_part, AT(extender.rules.bound), "0.7"},
        {"prefer", "WORD",
         "pack: nodes on which the pod goes well beside a job come\n"
         "first; spread: nodes with a GPU that is free",
         options_set_word, AT(extender.prefer), "pack", .words = prefer_words},
        {"resource", "NAME", "what pods ask for", set_resource, AT(extender.rules.resource),
         "sublet.dev/gpu"},
        {"devices-per-gpu", "N", "as in the nodes' device plugins", options_set_count,
         AT(extender.rules.devices_per_gpu), "100", .parameter = DEVICES_MOST},
        {"listen", "ADDR:PORT", "where the scheduler asks; without ADDR, on all addresses",
         options_set_text, AT(extender.server.listen), ":8444"},
        {"certificate", "FILE",
         "the certificate for TLS, and those that signed it (PEM);\n"
         "without it, plain HTTP is served",
         options_set_text, AT(certificate), NULL},
        {"key", "FILE", "the certificate's key (PEM)", options_set_text, AT(key), NULL},
        {"client-ca", "FILE",
         "answer only clients with a certificate that these authorities\n"
         "have signed (PEM), probes apart; read once",
         options_set_text, AT(extender.server.client_ca), NULL},
        API_OPTIONS(AT(extender.api), "pods and nodes"),
        {"linger", "DURATION", "after SIGTERM, go on for so long", set_linger,
         AT(extender.server.linger_ns), "0"},
        {0},
};

static void print_help(const struct options_table *t)
{
        (void)printf("usage: sublet-extender --jobs DIR [--model FILE] [OPTION]...\n\n"
                     "Tells Kubernetes' scheduler on which nodes a pod's job goes well beside the\n"
                     "jobs that run there: answers at /filter and /prioritize.\n\n");
        options_print(t);
        (void)printf(
                "\nVariables of the environment:\n" API_OPTIONS_VARIABLES
                "  SUBLET_LOG               what is said on stderr: error, warning, info or debug\n"
                "\nExit status: 0 stopped, 1 failed, 2 bad usage.\n");
}

static const struct options_table table = {"sublet-extender", rows, 21, print_help};

/* What the command line does not say comes from the environment that Kubernetes makes. */
static int complete(struct options *o)
{
        o->extender.server.plain = !o->certificate;
        if (!o->extender.jobs)
                return options_fail(&table, "--jobs DIR is needed: where are the job files?");
        if (!o->certificate != !o->key)
                return options_fail(&table, "--certificate and --key are given together");
        if (o->extender.server.client_ca && !o->certificate)
                return options_fail(&table, "--client-ca needs --certificate and --key");
        if (api_options_complete(&table, &o->extender.api) != 0)
                return OPTIONS_EXIT_USAGE;
        if (!o->extender.api.url[0])
                return options_fail(&table, "whom to ask for pods? --api-server URL says it");
        return 0;
}

int main(int argc, char *argv[])
{
        static struct options o = {.extender = {.model = ""}};
        char error[JOBS_ERROR_MAX] = "";
        int r;

        standard_open();
        log_open("sublet-extender", LOG_LEVEL_INFO);
        r = options_parse(&table, &o, argc, argv, error, sizeof(error));
        if (r)
                return r == OPTIONS_HELPED ? EXIT_SUCCESS : r;
        r = complete(&o);
        if (r)
                return r;
        server_block_signals();
        r = o.certificate ? certificate_open(o.certificate, o.key, error) : 0;
        if (r == 0)
                r = extender_run(&o.extender, error);
        certificate_close();
        if (r < 0)
                (void)fprintf(stderr, "sublet-extender: %s\n", error);
        return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
