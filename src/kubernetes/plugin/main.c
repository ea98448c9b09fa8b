/* main.c: owns the command line of sublet-device-plugin: one table drives parsing and help. Must
 * never start anything before the whole command line is understood. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/shares.h"
#include "base/standard.h"
#include "base/units.h"
#include "kubernetes/api/api_options.h"
#include "kubernetes/plugin/node_library.h"
#include "kubernetes/plugin/plugin.h"
#include "kubernetes/plugin/plugin_pod.h"

#define RELEASE_DIR "/var/lib/sublet/" SUBLET_VERSION "/"

#define AT(field) offsetof(struct options, field)

struct options {
        struct plugin_options plugin;
        const char *bring; /* NULL: the library is on the node already */
};

static int set_text(void *field, const char *value, size_t most)
{
        if (!value[0] || strlen(value) > most)
                return -EINVAL;
        *(const char **)field = value;
        return 0;
}

static int set_resource(const struct option_row *row, void *field, const char *value)
{
        return strchr(value, '/') ? set_text(field, value, 316) : -EINVAL;
}

static const char *const place_words[] = {[PLACE_SPREAD] = "spread", [PLACE_PACK] = "pack", NULL};
static const char *const access_words[] = {
        [GPU_ENVIRONMENT] = "environment", [GPU_CDI] = "cdi", [GPU_DEVICES] = "devices", NULL};
static const char *const inject_words[] = {
        [INJECT_PRELOAD_FILE] = "preload-file", [INJECT_ENVIRONMENT] = "environment", NULL};

static int set_endpoint(const struct option_row *row, void *field, const char *value)
{
        return strchr(value, '/') ? -EINVAL : set_text(field, value, 60);
}

static int set_cdi_kind(const struct option_row *row, void *field, const char *value)
{
        return strchr(value, '/') && !strchr(value, '=') ? set_text(field, value, 80) : -EINVAL;
}

static int set_node(const struct option_row *row, void *field, const char *value)
{
        return set_text(field, value, 253);
}

static int set_priority_most(const struct option_row *row, void *field, const char *value)
{
        return shares_parse_priority(value, field);
}

static int set_minimum_most(const struct option_row *row, void *field, const char *value)
{
        return shares_parse_percent(value, 0, SHARES_MINIMA_MAX, field);
}

static int set_weight_most(const struct option_row *row, void *field, const char *value)
{
        return shares_parse_weight(value, field);
}

static const struct option_row rows[] = {
        {"resource", "NAME", "what pods ask for", set_resource, AT(plugin.resource),
         "sublet.dev/gpu"},
        {"devices-per-gpu", "N", "how many containers may have a GPU at once, up to 1000",
         options_set_count, AT(plugin.devices), "100", .parameter = DEVICES_MAX},
        {"place", "WORD",
         "spread: a pod gets the GPU with the least load; pack: the\n"
         "fullest one on which its work still fits",
         options_set_word, AT(plugin.place), "spread", .words = place_words},
        {"gpu-access", "WORD",
         "how a container gets its GPU: environment\n"
         "(NVIDIA_VISIBLE_DEVICES, for the NVIDIA runtime), cdi, or\n"
         "devices (plain nodes of /dev)",
         options_set_word, AT(plugin.grant.access), "environment", .words = access_words},
        {"inject", "WORD",
         "how its programs get the library: preload-file (a mount of\n"
         "/etc/ld.so.preload) or environment (LD_PRELOAD)",
         options_set_word, AT(plugin.grant.inject), "preload-file", .words = inject_words},
        {"dir", "DIR", "the daemon's directory, as the plugin sees it", options_set_path,
         AT(plugin.dir), "/run/sublet"},
        {"kubelet-dir", "DIR", "where kubelet.sock is", options_set_path, AT(plugin.kubelet_dir),
         "/var/lib/kubelet/device-plugins"},
        {"endpoint", "NAME", "the plugin's own socket beside it", set_endpoint, AT(plugin.endpoint),
         "sublet-gpu.sock"},
        {"library", "FILE", "the library, on the node", options_set_path, AT(plugin.grant.library),
         RELEASE_DIR "libsublet.so"},
        {"bring", "FILE", "copy this to --library first, and write --preload-file",
         options_set_path, AT(bring), NULL},
        {"preload-file", "FILE", "a file of the node with one line,\n" GRANT_LIBRARY,
         options_set_path, AT(plugin.grant.preload_file), RELEASE_DIR "ld.so.preload"},
        {"host-dir", "DIR", "the daemon's directory, on the node", options_set_path,
         AT(plugin.grant.socket_dir), "/run/sublet"},
        {"cdi-kind", "KIND", "the kind of the GPUs' CDI names", set_cdi_kind,
         AT(plugin.grant.cdi_kind), "nvidia.com/gpu"},
        {"proc", "DIR", "the node's /proc, as the plugin sees it", options_set_path,
         AT(plugin.grant.proc), "/proc"},
        {"dev", "DIR", "the node's /dev, as the plugin sees it", options_set_path,
         AT(plugin.grant.dev), "/dev"},
        {"node", "NAME", "this node ($NODE_NAME)", set_node, AT(plugin.node), NULL},
        API_OPTIONS(AT(plugin.api), "this node's pods"),
        {"priority-most", "N", "the highest priority that a pod may ask for", set_priority_most,
         AT(plugin.bounds.priority_most), "0"},
        {"minimum-most", "N%", "the largest minimum that a pod may ask for", set_minimum_most,
         AT(plugin.bounds.minimum_most), "50%"},
        {"weight-most", "N", "the largest weight that a pod may ask for", set_weight_most,
         AT(plugin.bounds.weight_most), "1"},
        {0},
};

static void print_help(const struct options_table *t)
{
        (void)printf(
                "usage: sublet-device-plugin [OPTION]...\n\n"
                "Offers the GPUs of a Kubernetes node to its pods, each GPU several times: the\n"
                "programs in the pods share it through the node's subletd.\n\n");
        options_print(t);
        (void)printf(
                "\nVariables of the environment:\n"
                "  NODE_NAME                this node\n" API_OPTIONS_VARIABLES
                "  SUBLET_LOG               what is said on stderr: error, warning, info or debug\n"
                "\nExit status: 0 stopped, 1 failed, 2 bad usage.\n");
}

static const struct options_table table = {"sublet-device-plugin", rows, 20, print_help};

/* What the command line does not say comes from the environment that Kubernetes makes. */
static int complete(struct options *o)
{
        const char *node = getenv("NODE_NAME");

        if (!o->plugin.node)
                o->plugin.node = node ? node : "";
        if (api_options_complete(&table, &o->plugin.api) != 0)
                return OPTIONS_EXIT_USAGE;
        if (o->plugin.api.url[0] && (!o->plugin.node[0] || strlen(o->plugin.node) > 253))
                return options_fail(&table,
                                    "which node is this? --node NAME, or NODE_NAME, says it");
        return 0;
}

int main(int argc, char *argv[])
{
        static struct options o;
        char error[160];
        int r;

        standard_open();
        log_open("sublet-device-plugin", LOG_LEVEL_INFO);
        r = options_parse(&table, &o, argc, argv, error, sizeof(error));
        if (r)
                return r == OPTIONS_HELPED ? EXIT_SUCCESS : r;
        r = complete(&o);
        if (r)
                return r;
        if (!o.plugin.api.url[0])
                log_warning("no API server is named: pods get no classes, and no names in sublet "
                            "status");
        r = o.bring ? library_bring(o.bring, o.plugin.grant.library, o.plugin.grant.preload_file)
                    : 0;
        if (r == 0)
                r = plugin_run(&o.plugin);
        if (r < 0)
                log_error("cannot go on: %s", strerror(-r));
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
