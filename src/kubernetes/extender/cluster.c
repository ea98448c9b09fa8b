/* cluster.c: owns what is known of the cluster. Must never keep a pod that the API server no longer
 * shows. */
#include "kubernetes/extender/cluster.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* A node that pods name before the API server shows it has only a name. */
struct place_of_pods {
        struct node node; /* the name first: it is the key */
        bool known;
        unsigned list;
        struct cluster_pod *pods;
};

struct cluster {
        void *nodes, *pods; /* trees of tsearch(3): struct place_of_pods, struct cluster_pod */
        size_t n_pods;
        unsigned pod_list, node_list; /* numbers of the lists that began last */
        bool pods_known, nodes_known;
};

static int by_uid(const void *a, const void *b)
{
        return strcmp(((const struct cluster_pod *)a)->pod.uid,
                      ((const struct cluster_pod *)b)->pod.uid);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const struct place_of_pods *)a)->node.name,
                      ((const struct place_of_pods *)b)->node.name);
}

struct cluster *cluster_new(void)
{
        return calloc(1, sizeof(struct cluster));
}

void cluster_free(struct cluster *c)
{
        if (!c)
                return;
        tdestroy(c->nodes, free);
        tdestroy(c->pods, free);
        free(c);
}

/* ---- nodes ---- */

static struct place_of_pods *find_node(const struct cluster *c, const char *name)
{
        struct place_of_pods key;
        struct place_of_pods *const *found;

        if (strlen(name) >= sizeof(key.node.name))
                return NULL;
        (void)strcpy(key.node.name, name);
        found = (struct place_of_pods *const *)tfind(&key, &c->nodes, by_name);
        return found ? *found : NULL;
}

/* Returns the node of this name, which is made if it is not there. NULL: no memory. */
static struct place_of_pods *make_node(struct cluster *c, const char *name)
{
        struct place_of_pods *n = find_node(c, name);

        if (n)
                return n;
        n = calloc(1, sizeof(*n));
        if (!n)
                return NULL;
        (void)strcpy(n->node.name, name);
        if (tsearch(n, &c->nodes, by_name))
                return n;
        free(n);
        return NULL;
}

static void remove_if_empty(struct cluster *c, struct place_of_pods *n)
{
        if (n->known || n->pods)
                return;
        (void)tdelete(n, &c->nodes, by_name);
        free(n);
}

int cluster_put_node(struct cluster *c, const struct node *node)
{
        struct place_of_pods *n = make_node(c, node->name);

        if (!n)
                return -ENOMEM;
        n->node = *node;
        n->known = true;
        n->list = c->node_list;
        return 0;
}

static void forget_node(struct cluster *c, struct place_of_pods *n)
{
        n->known = false;
        n->node.gpus = 0;
        remove_if_empty(c, n);
}

void cluster_drop_node(struct cluster *c, const char *name)
{
        struct place_of_pods *n = find_node(c, name);

        if (n)
                forget_node(c, n);
}

const struct node *cluster_node(const struct cluster *c, const char *name)
{
        const struct place_of_pods *n = find_node(c, name);

        return n && n->known ? &n->node : NULL;
}

const struct cluster_pod *cluster_pods(const struct cluster *c, const char *node)
{
        const struct place_of_pods *n = find_node(c, node);

        return n ? n->pods : NULL;
}

/* ---- pods ---- */

static struct cluster_pod *find_pod(const struct cluster *c, const char *uid)
{
        struct cluster_pod key, *const *found;

        if (strlen(uid) >= sizeof(key.pod.uid))
                return NULL;
        (void)strcpy(key.pod.uid, uid);
        found = (struct cluster_pod *const *)tfind(&key, &c->pods, by_uid);
        return found ? *found : NULL;
}

/* Takes the pod from its node. */
static void unlink_pod(struct cluster *c, struct cluster_pod *p)
{
        struct place_of_pods *n = find_node(c, p->pod.node);
        struct cluster_pod **link = n ? &n->pods : NULL;

        while (link && *link && *link != p)
                link = &(*link)->next;
        if (link && *link)
                *link = p->next;
        if (n)
                remove_if_empty(c, n);
}

static void forget_pod(struct cluster *c, struct cluster_pod *p)
{
        unlink_pod(c, p);
        (void)tdelete(p, &c->pods, by_uid);
        c->n_pods--;
        free(p);
}

void cluster_drop_pod(struct cluster *c, const char *uid)
{
        struct cluster_pod *p = find_pod(c, uid);

        if (p)
                forget_pod(c, p);
}

static int add_pod(struct cluster *c, const struct pod *pod)
{
        struct place_of_pods *n = make_node(c, pod->node);
        struct cluster_pod *p = n ? calloc(1, sizeof(*p)) : NULL;

        if (!p)
                return -ENOMEM;
        *p = (struct cluster_pod){.next = n->pods, .pod = *pod, .list = c->pod_list};
        if (!tsearch(p, &c->pods, by_uid)) {
                free(p);
                return -ENOMEM;
        }
        n->pods = p;
        c->n_pods++;
        return 0;
}

int cluster_put_pod(struct cluster *c, const struct pod *pod)
{
        struct cluster_pod *p = find_pod(c, pod->uid);
        const bool wanted = pod->node[0] && pod->gpus > 0 && !pod->ended;

        if (p && wanted && strcmp(p->pod.node, pod->node) == 0) {
                p->pod = *pod;
                p->list = c->pod_list;
                return 0;
        }
        if (p)
                forget_pod(c, p);
        return wanted ? add_pod(c, pod) : 0;
}

bool cluster_has_pod(const struct cluster *c, const char *uid)
{
        return find_pod(c, uid) != NULL;
}

size_t cluster_count_pods(const struct cluster *c)
{
        return c->n_pods;
}

/* ---- lists ---- */

/* What a walk collects, because a tree must not change meanwhile. */
struct old {
        const struct cluster *c;
        void **list;
        size_t n, room;
};

static void keep_old(struct old *o, void *one)
{
        if (o->n == o->room) {
                const size_t room = MAX(o->room * 2, (size_t)64);
                void **more = reallocarray((void *)o->list, room, sizeof(*more));

                if (!more)
                        return; /* the next list removes it */
                o->list = more;
                o->room = room;
        }
        o->list[o->n++] = one;
}

static void on_pod(const void *at, VISIT visit, void *userdata)
{
        struct cluster_pod *p = *(struct cluster_pod *const *)at;
        struct old *o = userdata;

        if ((visit == postorder || visit == leaf) && p->list != o->c->pod_list)
                keep_old(o, p);
}

static void on_node(const void *at, VISIT visit, void *userdata)
{
        struct place_of_pods *n = *(struct place_of_pods *const *)at;
        struct old *o = userdata;

        if ((visit == postorder || visit == leaf) && n->known && n->list != o->c->node_list)
                keep_old(o, n);
}

void cluster_begin_pods(struct cluster *c)
{
        c->pod_list++;
}

void cluster_begin_nodes(struct cluster *c)
{
        c->node_list++;
}

void cluster_end_pods(struct cluster *c)
{
        struct old old = {.c = c};

        twalk_r(c->pods, on_pod, &old);
        for (size_t i = 0; i < old.n; i++)
                forget_pod(c, old.list[i]);
        free((void *)old.list);
        c->pods_known = true;
}

void cluster_end_nodes(struct cluster *c)
{
        struct old old = {.c = c};

        twalk_r(c->nodes, on_node, &old);
        for (size_t i = 0; i < old.n; i++)
                forget_node(c, old.list[i]);
        free((void *)old.list);
        c->nodes_known = true;
}

bool cluster_is_known(const struct cluster *c)
{
        return c->pods_known && c->nodes_known;
}
