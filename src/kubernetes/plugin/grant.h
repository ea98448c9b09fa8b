/* grant.h: what a container gets with its devices: the library, the daemon's sockets for
 * everybody, the GPU.
 *
 * Pure but for the look at the driver's files, which give the number of a GPU's device node. */
#pragma once

#include "kubernetes/plugin/plugin_cards.h"
#include "kubernetes/plugin/deviceplugin.pb-c.h"

#define GRANT_ERROR_MAX 256

enum inject { INJECT_PRELOAD_FILE, INJECT_ENVIRONMENT };
enum gpu_access { GPU_ENVIRONMENT, GPU_CDI, GPU_DEVICES };

/* Paths of the node, not of the plugin's container, unless said otherwise. */
struct grant_options {
        enum inject inject;
        enum gpu_access access;
        const char *library;      /* libsublet.so */
        const char *preload_file; /* a file with one line, the library's path in the container */
        const char *socket_dir;   /* the daemon's directory */
        const char *cdi_kind;     /* "nvidia.com/gpu" */
        const char *proc;         /* "/proc", as the plugin sees it */
        const char *dev;          /* "/dev", as the plugin sees it */
};

#define GRANT_LIBRARY "/usr/lib/sublet/libsublet.so"
#define GRANT_DIR     "/run/sublet"
#define GRANT_PRELOAD "/etc/ld.so.preload"

/* Encodes the answer to kubelet's request. 0, or -ENODEV, -EOPNOTSUPP or -ENOMEM with a sentence.
 * The caller frees *ret_bytes. */
int grant_answer(const struct grant_options *o, const struct cards *cards,
                 const V1beta1__AllocateRequest *request, uint8_t **ret_bytes, size_t *ret_n,
                 char error[static GRANT_ERROR_MAX]);

/* Finds the number N of the GPU's /dev/nvidiaN. 0 or -ENOENT. */
int grant_minor(const char *proc, const char *uuid, unsigned *ret_minor);
