/* main.c: owns the command line of sublet-device-plugin: one table drives parsing and help. Must
 * never start anything before the whole command line is understood. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/shares.h"
#include "base/units.h"
#include "kubernetes/plugin/library.h"
#include "kubernetes/plugin/plugin.h"
#include "kubernetes/plugin/pod.h"

#define RELEASE_DIR "/var/lib/sublet/" SUBLET_VERSION "/"

struct options {
        struct plugin_options plugin;
        const char *bring; /* NULL: the library is on the node already */
        char url[WEB_URL_MAX];
};

static int set_text(const char **ret, const char *value, size_t most)
{
        if (!value[0] || strlen(value) > most)
                return -EINVAL;
        *ret = value;
        return 0;
}

static int set_path(const char **ret, const char *value)
{
        return value[0] == '/' ? set_text(ret, value, 300) : -EINVAL;
}

/* Sets *ret to the place of the word in the list, which ends with NULL. */
static int set_word(unsigned *ret, const char *value, const char *const *words)
{
        for (unsigned i = 0; words[i]; i++)
                if (strcmp(words[i], value) == 0) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

static int set_resource(struct options *o, const char *value)
{
        return strchr(value, '/') ? set_text(&o->plugin.resource, value, 316) : -EINVAL;
}

static int set_devices(struct options *o, const char *value)
{
        uint64_t n;

        if (units_parse_count(value, &n) < 0 || n < 1 || n > DEVICES_MAX)
                return -EINVAL;
        o->plugin.devices = (unsigned)n;
        return 0;
}

static int set_place(struct options *o, const char *value)
{
        static const char *const words[] = {"spread", "pack", NULL};
        unsigned at;

        if (set_word(&at, value, words) < 0)
                return -EINVAL;
        o->plugin.place = (enum place)at;
        return 0;
}

static int set_access(struct options *o, const char *value)
{
        static const char *const words[] = {"environment", "cdi", "devices", NULL};
        unsigned at;

        if (set_word(&at, value, words) < 0)
                return -EINVAL;
        o->plugin.grant.access = (enum gpu_access)at;
        return 0;
}

static int set_inject(struct options *o, const char *value)
{
        static const char *const words[] = {"preload-file", "environment", NULL};
        unsigned at;

        if (set_word(&at, value, words) < 0)
                return -EINVAL;
        o->plugin.grant.inject = (enum inject)at;
        return 0;
}

static int set_dir(struct options *o, const char *value)
{
        return set_path(&o->plugin.dir, value);
}

static int set_kubelet_dir(struct options *o, const char *value)
{
        return set_path(&o->plugin.kubelet_dir, value);
}

static int set_endpoint(struct options *o, const char *value)
{
        return strchr(value, '/') ? -EINVAL : set_text(&o->plugin.endpoint, value, 60);
}

static int set_library(struct options *o, const char *value)
{
        return set_path(&o->plugin.grant.library, value);
}

static int set_bring(struct options *o, const char *value)
{
        return set_path(&o->bring, value);
}

static int set_preload_file(struct options *o, const char *value)
{
        return set_path(&o->plugin.grant.preload_file, value);
}

static int set_host_dir(struct options *o, const char *value)
{
        return set_path(&o->plugin.grant.socket_dir, value);
}

static int set_cdi_kind(struct options *o, const char *value)
{
        return strchr(value, '/') && !strchr(value, '=')
                       ? set_text(&o->plugin.grant.cdi_kind, value, 80)
                       : -EINVAL;
}

static int set_proc(struct options *o, const char *value)
{
        return set_path(&o->plugin.grant.proc, value);
}

static int set_dev(struct options *o, const char *value)
{
        return set_path(&o->plugin.grant.dev, value);
}

static int set_node(struct options *o, const char *value)
{
        return set_text(&o->plugin.node, value, 253);
}

static int set_api_server(struct options *o, const char *value)
{
        o->plugin.api.url = o->url;
        return web_copy_url(value, o->url);
}

static int set_token_file(struct options *o, const char *value)
{
        return set_path(&o->plugin.api.token_file, value);
}

static int set_ca_file(struct options *o, const char *value)
{
        return set_path(&o->plugin.api.ca_file, value);
}

static int set_priority_most(struct options *o, const char *value)
{
        return shares_parse_priority(value, &o->plugin.bounds.priority_most);
}

static int set_minimum_most(struct options *o, const char *value)
{
        return shares_parse_percent(value, 0, SHARES_MINIMA_MAX, &o->plugin.bounds.minimum_most);
}

static const struct option_row rows[] = {
        {"resource", "NAME", "what pods ask for", set_resource, "sublet.dev/gpu"},
        {"devices-per-gpu", "N", "how many containers may have a GPU at once, up to 1000",
         set_devices, "100"},
        {"place", "WORD",
         "spread: a pod gets the GPU with the least load; pack: the\n"
         "fullest one on which its work still fits",
         set_place, "spread"},
        {"gpu-access", "WORD",
         "how a container gets its GPU: environment\n"
         "(NVIDIA_VISIBLE_DEVICES, for the NVIDIA runtime), cdi, or\n"
         "devices (plain nodes of /dev)",
         set_access, "environment"},
        {"inject", "WORD",
         "how its programs get the library: preload-file (a mount of\n"
         "/etc/ld.so.preload) or environment (LD_PRELOAD)",
         set_inject, "preload-file"},
        {"dir", "DIR", "the daemon's directory, as the plugin sees it", set_dir, "/run/sublet"},
        {"kubelet-dir", "DIR", "where kubelet.sock is", set_kubelet_dir,
         "/var/lib/kubelet/device-plugins"},
        {"endpoint", "NAME", "the plugin's own socket beside it", set_endpoint, "sublet-gpu.sock"},
        {"library", "FILE", "the library, on the node", set_library, RELEASE_DIR "libsublet.so"},
        {"bring", "FILE", "copy this to --library first, and write --preload-file", set_bring,
         NULL},
        {"preload-file", "FILE", "a file of the node with one line,\n" GRANT_LIBRARY,
         set_preload_file, RELEASE_DIR "ld.so.preload"},
        {"host-dir", "DIR", "the daemon's directory, on the node", set_host_dir, "/run/sublet"},
        {"cdi-kind", "KIND", "the kind of the GPUs' CDI names", set_cdi_kind, "nvidia.com/gpu"},
        {"proc", "DIR", "the node's /proc, as the plugin sees it", set_proc, "/proc"},
        {"dev", "DIR", "the node's /dev, as the plugin sees it", set_dev, "/dev"},
        {"node", "NAME", "this node ($NODE_NAME)", set_node, NULL},
        {"api-server", "URL",
         "whom to ask for this node's pods\n"
         "(https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT)",
         set_api_server, NULL},
        {"token-file", "FILE", "the service account's token", set_token_file,
         WEB_SERVICE_ACCOUNT "token"},
        {"ca-file", "FILE", "who vouches for the API server", set_ca_file,
         WEB_SERVICE_ACCOUNT "ca.crt"},
        {"priority-most", "N", "the highest priority that a pod may ask for", set_priority_most,
         "0"},
        {"minimum-most", "N%", "the largest minimum that a pod may ask for", set_minimum_most,
         "50%"},
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
                "  NODE_NAME                this node\n"
                "  KUBERNETES_SERVICE_HOST  the API server; Kubernetes sets it in pods\n"
                "  KUBERNETES_SERVICE_PORT  its port\n"
                "  SUBLET_LOG               what is said on stderr: error, warning, info or debug\n"
                "\nExit status: 0 stopped, 1 failed, 2 bad usage.\n");
}

static const struct options_table table = {"sublet-device-plugin", rows, ARRAY_SIZE(rows), 20,
                                           print_help};

/* What the command line does not say comes from the environment that Kubernetes makes. */
static int complete(struct options *o)
{
        const char *node = getenv("NODE_NAME");

        if (!o->plugin.node)
                o->plugin.node = node ? node : "";
        o->plugin.api.program = table.program;
        if (!o->plugin.api.url && web_url_of_cluster(o->url) < 0)
                return options_fail(&table, "KUBERNETES_SERVICE_HOST names no host");
        o->plugin.api.url = o->url;
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
