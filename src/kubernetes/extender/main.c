/* main.c: owns the command line of sublet-extender: one table drives parsing and help. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/shares.h"
#include "base/units.h"
#include "kubernetes/extender/extender.h"
#include "kubernetes/serve/certificate.h"

#define LINGER_MAX_NS (300 * NSEC_PER_SEC)
#define DEVICES_MOST  1000u

struct options {
        struct extender_options extender;
        const char *certificate, *key;
        char url[WEB_URL_MAX];
};

static int set_text(const char **ret, const char *value)
{
        *ret = value;
        return *value ? 0 : -ENODATA;
}

static int set_listen(struct options *o, const char *value)
{
        return set_text(&o->extender.server.listen, value);
}

static int set_certificate(struct options *o, const char *value)
{
        return set_text(&o->certificate, value);
}

static int set_key(struct options *o, const char *value)
{
        return set_text(&o->key, value);
}

static int set_client_ca(struct options *o, const char *value)
{
        return set_text(&o->extender.server.client_ca, value);
}

static int set_jobs(struct options *o, const char *value)
{
        return set_text(&o->extender.jobs, value);
}

static int set_model(struct options *o, const char *value)
{
        return set_text(&o->extender.model, value);
}

static int set_qos(struct options *o, const char *value)
{
        unsigned thousandths;

        if (shares_parse_part(value, 10, 990, &thousandths) < 0)
                return -EINVAL;
        o->extender.rules.bound = thousandths / 1000.0;
        return 0;
}

static int set_prefer(struct options *o, const char *value)
{
        if (strcmp(value, "pack") != 0 && strcmp(value, "spread") != 0)
                return -EINVAL;
        o->extender.prefer = strcmp(value, "pack") == 0 ? PREFER_PACK : PREFER_SPREAD;
        return 0;
}

static int set_resource(struct options *o, const char *value)
{
        return strchr(value, '/') ? set_text(&o->extender.rules.resource, value) : -EINVAL;
}

static int set_devices(struct options *o, const char *value)
{
        uint64_t n;

        if (units_parse_count(value, &n) < 0 || n < 1 || n > DEVICES_MOST)
                return -EINVAL;
        o->extender.rules.devices_per_gpu = (unsigned)n;
        return 0;
}

static int set_api_server(struct options *o, const char *value)
{
        o->extender.api.url = o->url;
        return web_copy_url(value, o->url);
}

static int set_token_file(struct options *o, const char *value)
{
        return set_text(&o->extender.api.token_file, value);
}

static int set_ca_file(struct options *o, const char *value)
{
        return set_text(&o->extender.api.ca_file, value);
}

static int set_linger(struct options *o, const char *value)
{
        return units_parse_duration(value, &o->extender.server.linger_ns) < 0 ||
                               o->extender.server.linger_ns > LINGER_MAX_NS
                       ? -EINVAL
                       : 0;
}

static const struct option_row rows[] = {
        {"jobs", "DIR",
         "the job files that sublet measure wrote: the pods' annotation\n"
         "sublet.dev/job: NAME means NAME.json; changed files are read again",
         set_jobs, NULL},
        {"model", "FILE",
         "what sublet train wrote for the nodes' card; without it, only\n"
         "jobs that do not fit a card together are predicted",
         set_model, NULL},
        {"qos", "PART",
         "the part of its progress alone that a job keeps at least,\n"
         "unless its pod says sublet.dev/qos",
         set_qos, "0.7"},
        {"prefer", "WORD",
         "pack: nodes on which the pod goes well beside a job come\n"
         "first; spread: nodes with a GPU that is free",
         set_prefer, "pack"},
        {"resource", "NAME", "what pods ask for", set_resource, "sublet.dev/gpu"},
        {"devices-per-gpu", "N", "as in the nodes' device plugins", set_devices, "100"},
        {"listen", "ADDR:PORT", "where the scheduler asks; without ADDR, on all addresses",
         set_listen, ":8444"},
        {"certificate", "FILE",
         "the certificate for TLS, and those that signed it (PEM);\n"
         "without it, plain HTTP is served",
         set_certificate, NULL},
        {"key", "FILE", "the certificate's key (PEM)", set_key, NULL},
        {"client-ca", "FILE",
         "answer only clients with a certificate that these authorities\n"
         "have signed (PEM), probes apart; read once",
         set_client_ca, NULL},
        {"api-server", "URL",
         "whom to ask for pods and nodes\n"
         "(https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT)",
         set_api_server, NULL},
        {"token-file", "FILE", "the service account's token", set_token_file,
         WEB_SERVICE_ACCOUNT "token"},
        {"ca-file", "FILE", "who vouches for the API server", set_ca_file,
         WEB_SERVICE_ACCOUNT "ca.crt"},
        {"linger", "DURATION", "after SIGTERM, go on for so long", set_linger, "0"},
};

static void print_help(const struct options_table *t)
{
        (void)printf("usage: sublet-extender --jobs DIR [--model FILE] [OPTION]...\n\n"
                     "Tells Kubernetes' scheduler on which nodes a pod's job goes well beside the\n"
                     "jobs that run there: answers at /filter and /prioritize.\n\n");
        options_print(t);
        (void)printf(
                "\nVariables of the environment:\n"
                "  KUBERNETES_SERVICE_HOST  the API server; Kubernetes sets it in pods\n"
                "  KUBERNETES_SERVICE_PORT  its port\n"
                "  SUBLET_LOG               what is said on stderr: error, warning, info or debug\n"
                "\nExit status: 0 stopped, 1 failed, 2 bad usage.\n");
}

static const struct options_table table = {"sublet-extender", rows, ARRAY_SIZE(rows), 21,
                                           print_help};

/* What the command line does not say comes from the environment that Kubernetes makes. */
static int complete(struct options *o)
{
        o->extender.api.program = table.program;
        o->extender.server.plain = !o->certificate;
        if (!o->extender.jobs)
                return options_fail(&table, "--jobs DIR is needed: where are the job files?");
        if (!o->certificate != !o->key)
                return options_fail(&table, "--certificate and --key are given together");
        if (o->extender.server.client_ca && !o->certificate)
                return options_fail(&table, "--client-ca needs --certificate and --key");
        if (!o->extender.api.url && web_url_of_cluster(o->url) < 0)
                return options_fail(&table, "KUBERNETES_SERVICE_HOST names no host");
        o->extender.api.url = o->url;
        if (!o->url[0])
                return options_fail(&table, "whom to ask for pods? --api-server URL says it");
        return 0;
}

int main(int argc, char *argv[])
{
        static struct options o = {.extender = {.model = ""}};
        char error[JOBS_ERROR_MAX] = "";
        int r;

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
