/* grant.c: owns the answer to an allocation. Must never give a container a thing that was not asked
 * for. */
#include "kubernetes/plugin/grant.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/daemon_paths.h"
#include "base/text.h"
#include "base/units.h"

#define ENVS_MAX       4
#define MOUNTS_MAX     3
#define SHARED_MAX     4 /* device nodes of the driver that belong to no GPU */
#define NODE_MAX       64
#define CONTAINERS_MAX 64 /* containers of one request */

/* Everything that one container's answer points to. */
struct container {
        V1beta1__ContainerAllocateResponse answer;
        V1beta1__Pair envs[ENVS_MAX], *env_list[ENVS_MAX], note, *note_list[1];
        V1beta1__Mount mounts[MOUNTS_MAX], *mount_list[MOUNTS_MAX];
        V1beta1__DeviceSpec nodes[CARDS_MAX + SHARED_MAX], *node_list[CARDS_MAX + SHARED_MAX];
        V1beta1__CDIDevice cdi[CARDS_MAX], *cdi_list[CARDS_MAX];
        char cdi_names[CARDS_MAX][160];
        char paths[CARDS_MAX + SHARED_MAX][NODE_MAX];
        char sockets[PATH_MAX];
        char uuids[CARDS_MAX * CARD_UUID_MAX];
        char cdi_all[CARDS_MAX * 160];
};

static void add_env(struct container *c, const char *key, const char *value)
{
        V1beta1__Pair *pair = &c->envs[c->answer.n_envs];

        v1beta1__pair__init(pair);
        pair->key = (char *)key;
        pair->value = (char *)value;
        c->env_list[c->answer.n_envs++] = pair;
}

static void add_mount(struct container *c, const char *from, const char *to)
{
        V1beta1__Mount *mount = &c->mounts[c->answer.n_mounts];

        v1beta1__mount__init(mount);
        mount->host_path = (char *)from;
        mount->container_path = (char *)to;
        mount->read_only = 1;
        c->mount_list[c->answer.n_mounts++] = mount;
}

static void add_node(struct container *c, const char *name)
{
        const size_t at = c->answer.n_devices++;
        V1beta1__DeviceSpec *node = &c->nodes[at];

        v1beta1__device_spec__init(node);
        (void)snprintf(c->paths[at], NODE_MAX, "/dev/%s", name);
        node->host_path = node->container_path = c->paths[at];
        node->permissions = (char *)"rw";
        c->node_list[at] = node;
}

static void add_cdi(struct container *c, const char *kind, const char *uuid)
{
        const size_t at = c->answer.n_cdi_devices++;
        const size_t used = strlen(c->cdi_all);

        (void)snprintf(c->cdi_names[at], sizeof(c->cdi_names[at]), "%.80s=%s", kind, uuid);
        v1beta1__cdidevice__init(&c->cdi[at]);
        c->cdi[at].name = c->cdi_names[at];
        c->cdi_list[at] = &c->cdi[at];
        (void)snprintf(c->cdi_all + used, sizeof(c->cdi_all) - used, "%s%s", used ? "," : "",
                       c->cdi_names[at]);
}

int grant_minor(const char *proc, const char *uuid, unsigned *ret_minor)
{
        char path[512], line[256];
        DIR *folder;
        const struct dirent *entry;
        int r = -ENOENT;

        (void)snprintf(path, sizeof(path), "%s/driver/nvidia/gpus", proc);
        folder = opendir(path);
        while (folder && r < 0 && (entry = readdir(folder))) {
                _cleanup_fclose_ FILE *f = NULL;
                bool found = false;
                uint64_t minor = UINT64_MAX;

                (void)snprintf(path, sizeof(path), "%s/driver/nvidia/gpus/%s/information", proc,
                               entry->d_name);
                f = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
                while (f && fgets(line, sizeof(line), f)) {
                        char *value = strchr(line, ':');

                        if (!value)
                                continue;
                        value += 1 + strspn(value + 1, " \t");
                        value[strcspn(value, " \t\n")] = '\0';
                        if (strncmp(line, "GPU UUID", 8) == 0)
                                found = strcmp(value, uuid) == 0;
                        else if (strncmp(line, "Device Minor", 12) == 0 &&
                                 units_parse_count(value, &minor) < 0)
                                minor = UINT64_MAX;
                }
                if (found && minor <= UINT32_MAX) {
                        *ret_minor = (unsigned)minor;
                        r = 0;
                }
        }
        if (folder)
                (void)closedir(folder);
        return r;
}

static bool node_exists(const struct grant_options *o, const char *name)
{
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", o->dev, name);
        return access(path, F_OK) == 0;
}

static int add_nodes(struct container *c, const struct grant_options *o, const struct card *card,
                     char error[static GRANT_ERROR_MAX])
{
        char name[NODE_MAX - 8];
        unsigned minor;

        if (strncmp(card->uuid, "MIG-", 4) == 0) {
                (void)snprintf(error, GRANT_ERROR_MAX,
                               "%s is a MIG instance, which needs more than device nodes: start "
                               "the plugin with --gpu-access cdi or environment",
                               card->uuid);
                return -EOPNOTSUPP;
        }
        if (grant_minor(o->proc, card->uuid, &minor) < 0) {
                (void)snprintf(error, GRANT_ERROR_MAX,
                               "%s/driver/nvidia/gpus does not list %s: is the driver loaded?",
                               o->proc, card->uuid);
                return -ENODEV;
        }
        (void)snprintf(name, sizeof(name), "nvidia%u", minor);
        add_node(c, name);
        return 0;
}

static int add_gpus(struct container *c, const struct grant_options *o, const struct cards *cards,
                    const bool wanted[static CARDS_MAX], char error[static GRANT_ERROR_MAX])
{
        static const char *const shared[SHARED_MAX] = {"nvidiactl", "nvidia-uvm",
                                                       "nvidia-uvm-tools", "nvidia-modeset"};
        int r = 0;

        if (o->access == GPU_DEVICES)
                for (unsigned i = 0; i < SHARED_MAX; i++)
                        if (i < 2 || node_exists(o, shared[i]))
                                add_node(c, shared[i]);
        for (unsigned i = 0; i < cards->n && r == 0; i++) {
                const size_t used = strlen(c->uuids);

                if (!wanted[i])
                        continue;
                (void)snprintf(c->uuids + used, sizeof(c->uuids) - used, "%s%s", used ? "," : "",
                               cards->list[i].uuid);
                if (o->access == GPU_DEVICES)
                        r = add_nodes(c, o, &cards->list[i], error);
                else if (o->access == GPU_CDI)
                        add_cdi(c, o->cdi_kind, cards->list[i].uuid);
        }
        if (o->access == GPU_ENVIRONMENT)
                add_env(c, "NVIDIA_VISIBLE_DEVICES", c->uuids);
        if (o->access == GPU_CDI) {
                /* Kubelets before 1.29 pass only the annotation on (1.28 with a feature gate also
                 * the field). Engines that get both take each name once. */
                v1beta1__pair__init(&c->note);
                c->note.key = (char *)"cdi.k8s.io/sublet";
                c->note.value = c->cdi_all;
                c->note_list[c->answer.n_annotations++] = &c->note;
        }
        return r;
}

static int fill(struct container *c, const struct grant_options *o, const struct cards *cards,
                const V1beta1__ContainerAllocateRequest *request,
                char error[static GRANT_ERROR_MAX])
{
        bool wanted[CARDS_MAX] = {false};

        v1beta1__container_allocate_response__init(&c->answer);
        c->answer.envs = c->env_list;
        c->answer.mounts = c->mount_list;
        c->answer.devices = c->node_list;
        c->answer.annotations = c->note_list;
        c->answer.cdi_devices = c->cdi_list;
        if (request->n_ids == 0) {
                (void)snprintf(error, GRANT_ERROR_MAX, "a container asks for no device");
                return -EINVAL;
        }
        for (size_t d = 0; d < request->n_ids; d++) {
                const int card = device_card(cards, request->ids[d]);

                if (card < 0) {
                        char shown[81];

                        (void)snprintf(error, GRANT_ERROR_MAX,
                                       "there is no device \"%s\" on this node",
                                       text_copy(shown, sizeof(shown), request->ids[d]));
                        return -EINVAL;
                }
                wanted[card] = true;
        }
        add_mount(c, o->library, GRANT_LIBRARY);
        (void)snprintf(c->sockets, sizeof(c->sockets), "%s/" PATHS_PUBLIC, o->socket_dir);
        add_mount(c, c->sockets, GRANT_DIR);
        add_env(c, "SUBLET_DIR", GRANT_DIR);
        if (o->inject == INJECT_PRELOAD_FILE) {
                add_mount(c, o->preload_file, GRANT_PRELOAD);
                add_env(c, "SUBLET_INJECTED", "preload-file");
        } else {
                add_env(c, "LD_PRELOAD", GRANT_LIBRARY);
                add_env(c, "SUBLET_INJECTED", "environment");
        }
        return add_gpus(c, o, cards, wanted, error);
}

int grant_answer(const struct grant_options *o, const struct cards *cards,
                 const V1beta1__AllocateRequest *request, uint8_t **ret_bytes, size_t *ret_n,
                 char error[static GRANT_ERROR_MAX])
{
        V1beta1__AllocateResponse answer = V1BETA1__ALLOCATE_RESPONSE__INIT;
        const size_t n = request->n_containers;
        const size_t room = MIN(n, (size_t)CONTAINERS_MAX) + 1;
        _cleanup_free_ struct container *list = calloc(room, sizeof(*list));
        _cleanup_free_ V1beta1__ContainerAllocateResponse **pointers =
                calloc(room, sizeof(*pointers));
        uint8_t *bytes;

        if (n > CONTAINERS_MAX) {
                (void)snprintf(error, GRANT_ERROR_MAX, "a request for more than %d containers",
                               CONTAINERS_MAX);
                return -EINVAL;
        }
        for (size_t i = 0; list && pointers && i < n; i++) {
                const int r = fill(&list[i], o, cards, request->containers[i], error);

                if (r < 0)
                        return r;
                pointers[i] = &list[i].answer;
        }
        answer.n_containers = n;
        answer.containers = pointers;
        bytes = list && pointers ? malloc(v1beta1__allocate_response__get_packed_size(&answer) + 1)
                                 : NULL;
        if (!bytes) {
                (void)snprintf(error, GRANT_ERROR_MAX, "out of memory");
                return -ENOMEM;
        }
        *ret_n = v1beta1__allocate_response__pack(&answer, bytes);
        *ret_bytes = bytes;
        return 0;
}
