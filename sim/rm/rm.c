/* rm.c: the resource manager (RM): the tree of this process's objects, and the answers to requests.
 * Must never take sim.lock, nor call the driver. */
#include "sim/rm/rm.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/session/fault.h"

/* First handles that RM chooses. No two processes have a client with the same handle. */
#define CLIENT_FIRST (0xc1d00000u + ((unsigned)getpid() * 16u & 0xffff0u))
#define OBJECT_FIRST 0xcaf00000u

struct object {
        struct object *next;
        uint32_t client, handle, parent, class;
        unsigned device;
        struct channel *channel;
        bool scheduled, goes;
        uint64_t slice_us; /* of a group; the simulated hardware has no slices */
};

/* As in NVIDIA's RM, this lock is held while work on disabled channels comes to a stop, so no
 * object is made or freed during that time. Taken after sim.lock and before the lock of
 * channel.c. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static uint32_t clients, next_object = OBJECT_FIRST;

static struct object *find(uint32_t client, uint32_t handle)
{
        for (struct object *o = objects; o; o = o->next)
                if (o->client == client && o->handle == handle)
                        return o;
        return NULL;
}

/* Returns the error for a handle that names no object. */
static enum rm_status missing(uint32_t client)
{
        return find(client, client) ? RM_NOT_FOUND : RM_INVALID_CLIENT;
}

struct channel *rm_channel(uint32_t client, uint32_t channel)
{
        const struct object *o;

        (void)pthread_mutex_lock(&lock);
        o = find(client, channel);
        (void)pthread_mutex_unlock(&lock);
        return o ? o->channel : NULL;
}

/* ---- making and freeing objects ---- */

static bool is_channel(uint32_t class)
{
        return (class & 0xff) == 0x6f && class >= 0xa06f && class <= 0xffff;
}

static uint32_t parent_class(uint32_t class)
{
        switch (class) {
        case CLASS_DEVICE:
                return CLASS_CLIENT;
        case CLASS_SUBDEVICE:
        case CLASS_GROUP:
                return CLASS_DEVICE;
        case CLASS_DIAGNOSTICS:
                return CLASS_SUBDEVICE;
        default:
                return is_channel(class) ? CLASS_GROUP : 0;
        }
}

static bool has_child(const struct object *parent, uint32_t class)
{
        for (const struct object *o = objects; o; o = o->next)
                if (o->client == parent->client && o->parent == parent->handle && o->class == class)
                        return true;
        return false;
}

static enum rm_status add(struct object made)
{
        struct object *o;

        if (is_channel(made.class) && !(made.channel = channel_new()))
                return RM_NO_MEMORY;
        o = malloc(sizeof(*o));
        if (!o) {
                if (made.channel)
                        channel_end(made.channel);
                return RM_NO_MEMORY;
        }
        *o = made;
        o->next = objects;
        objects = o;
        return RM_OK;
}

static enum rm_status alloc_client(struct rm_alloc_head *a)
{
        uint32_t handle = a->object ? a->object : CLIENT_FIRST + clients++;
        enum rm_status status = RM_DUPLICATE_NAME;

        if (!find(handle, handle))
                status = add(
                        (struct object){.client = handle, .handle = handle, .class = CLASS_CLIENT});
        if (status == RM_OK) {
                a->object = handle;
                a->class = CLASS_CLIENT;
        }
        return status;
}

static enum rm_status alloc(struct rm_alloc_head *a)
{
        const struct rm_device_params *params = (const void *)(uintptr_t)a->params;
        const struct object *parent;
        unsigned device;

        if (a->class == 0 || a->class == 1 || a->class == CLASS_CLIENT)
                return alloc_client(a);
        if (!parent_class(a->class))
                return RM_INVALID_CLASS;
        parent = find(a->client, a->parent);
        if (!parent)
                return missing(a->client);
        if (parent->class != parent_class(a->class))
                return RM_INVALID_PARENT;
        if (a->object && find(a->client, a->object))
                return RM_DUPLICATE_NAME;
        if (a->class == CLASS_DIAGNOSTICS && has_child(parent, a->class))
                return RM_IN_USE;
        device = parent->device;
        if (a->class == CLASS_DEVICE) {
                device = params ? params->device : 0;
                if (device >= session_device_count(sim.session))
                        return RM_INVALID_ARGUMENT;
        } else if (!params && (a->class == CLASS_GROUP || is_channel(a->class))) {
                return RM_INVALID_ARGUMENT;
        }
        while (!a->object || find(a->client, a->object))
                a->object = next_object++;
        return add((struct object){.client = a->client,
                                   .handle = a->object,
                                   .parent = a->parent,
                                   .class = a->class,
                                   .device = device,
                                   .slice_us = 2048});
}

static void mark_below(const struct object *of)
{
        for (struct object *o = objects; o; o = o->next)
                if (!o->goes && o->client == of->client &&
                    (o->parent == of->handle || of->class == CLASS_CLIENT)) {
                        o->goes = true;
                        mark_below(o);
                }
}

static enum rm_status free_object(uint32_t client, uint32_t handle)
{
        struct object *o = find(client, handle), **link = &objects;

        if (!o)
                return missing(client);
        o->goes = true;
        mark_below(o);
        while ((o = *link)) {
                if (!o->goes) {
                        link = &o->next;
                        continue;
                }
                *link = o->next;
                if (o->channel)
                        channel_end(o->channel);
                free(o);
        }
        return RM_OK;
}

/* ---- controls ---- */

/* ret_n: the number of channels before the first one that does not exist. */
static enum rm_status pairs(const struct rm_disable_params *p, struct channel **ret_list,
                            uint32_t *ret_n)
{
        for (uint32_t i = 0; i < p->count; i++) {
                const struct object *o = find(p->clients[i], p->channels[i]);

                *ret_n = i;

                if (!find(p->clients[i], p->clients[i]))
                        return RM_INVALID_CLIENT;
                if (!o || !o->channel)
                        return RM_INVALID_CHANNEL;
                ret_list[i] = o->channel;
        }
        return RM_OK;
}

/* Disables or enables channels. most: an injected fault makes the control stop after this number of
 * channels, with a time-out; UINT_MAX: no fault. */
static enum rm_status disable(const struct object *o, const struct rm_disable_params *p,
                              unsigned most)
{
        struct session_counters *n = &session_own(sim.session, o->device)->counters;
        struct channel *list[RM_DISABLE_MOST];
        enum rm_status status;
        uint32_t before = 0;

        if (p->event)
                return RM_INSUFFICIENT_PERMISSIONS;
        if (p->count > RM_DISABLE_MOST)
                return RM_INVALID_ARGUMENT;
        if (p->only_scheduling || p->rewind) /* only real cards support these options */
                return RM_NOT_SUPPORTED;
        status = pairs(p, list, &before);
        if (status != RM_OK) {
                if (p->disable)
                        channels_disable(list, before, true);
                else
                        channels_enable(list, before);
                return status;
        }
        if (p->disable)
                channels_disable(list, MIN(p->count, most), false);
        else
                channels_enable(list, MIN(p->count, most));
        if (most < UINT_MAX)
                return RM_TIMEOUT;
        session_count(p->disable ? &n->freezes : &n->thaws, 1);
        return RM_OK;
}

static enum rm_status preemption_modes(const struct object *o, struct rm_preemption_params *p)
{
        const struct object *channel = find(o->client, p->channel);

        if (!channel || !channel->channel)
                return RM_INVALID_CHANNEL;
        p->zcull = p->pm = p->smpc = p->graphics = 0;
        p->compute = 2;
        return RM_OK;
}

static enum rm_status channel_state(struct rm_state_params *p)
{
        const struct object *o = find(p->client, p->channel);

        if (!find(p->client, p->client))
                return RM_INVALID_CLIENT;
        if (!o || !o->channel)
                return RM_INVALID_CHANNEL;
        p->bound = true;
        p->enabled = channel_enabled(o->channel);
        p->scheduled = o->scheduled;
        p->cpu_map = p->contention = p->runlist_set = p->deferred_error = 0;
        return RM_OK;
}

/* Puts channels on a runlist or takes them off. As on a card, a disabled channel stays disabled. */
static enum rm_status schedule(struct object *of, const struct rm_schedule_params *p)
{
        for (struct object *o = objects; o; o = o->next)
                if (o == of || (o->client == of->client && o->parent == of->handle))
                        o->scheduled = p->enable;
        return RM_OK;
}

static enum rm_status control(struct rm_control_call *c, unsigned most)
{
        struct object *o = find(c->client, c->object);
        void *params = (void *)(uintptr_t)c->params;
        static const struct {
                uint32_t command, class;
                size_t bytes;
        } known[] = {
                {CONTROL_DISABLE_CHANNELS, CLASS_SUBDEVICE, sizeof(struct rm_disable_params)},
                {CONTROL_PREEMPTION_MODES, CLASS_SUBDEVICE, sizeof(struct rm_preemption_params)},
                {CONTROL_CHANNEL_STATE, CLASS_DIAGNOSTICS, sizeof(struct rm_state_params)},
                {CONTROL_SCHEDULE_GROUP, CLASS_GROUP, 0},
                {CONTROL_SET_SLICE, CLASS_GROUP, sizeof(o->slice_us)},
                {CONTROL_GET_SLICE, CLASS_GROUP, sizeof(o->slice_us)},
                {CONTROL_SCHEDULE_CHANNEL, CLASS_CHANNEL, 0},
        };
        size_t bytes = 0, i = 0;

        if (!o)
                return missing(c->client);
        while (i < ARRAY_SIZE(known) &&
               (known[i].command != c->command || known[i].class != o->class))
                i++;
        if (i == ARRAY_SIZE(known))
                return RM_NOT_SUPPORTED;
        bytes = known[i].bytes ? known[i].bytes : rm_since(575, 51, 2) ? 3 : 2;
        if (!params || c->params_size != bytes)
                return RM_INVALID_PARAMETERS;
        switch (c->command) {
        case CONTROL_DISABLE_CHANNELS:
                return disable(o, params, most);
        case CONTROL_PREEMPTION_MODES:
                return preemption_modes(o, params);
        case CONTROL_CHANNEL_STATE:
                return channel_state(params);
        case CONTROL_SET_SLICE:
                memcpy(&o->slice_us, params, sizeof(o->slice_us));
                return RM_OK;
        case CONTROL_GET_SLICE:
                memcpy(params, &o->slice_us, sizeof(o->slice_us));
                return RM_OK;
        default:
                return schedule(o, params);
        }
}

/* ---- requests ---- */

static int answer_alloc(void *argument, size_t bytes)
{
        for (int is_long = 0; is_long < 2; is_long++) {
                struct rm_alloc_form form = rm_alloc_form(is_long);
                uint32_t status;

                if (bytes != form.bytes)
                        continue;
                (void)pthread_mutex_lock(&lock);
                status = alloc(argument);
                (void)pthread_mutex_unlock(&lock);
                memcpy((char *)argument + form.status, &status, sizeof(status));
                return 0;
        }
        return -EINVAL;
}

static int answer_free(struct rm_free_call *f)
{
        (void)pthread_mutex_lock(&lock);
        f->status = free_object(f->client, f->object);
        (void)pthread_mutex_unlock(&lock);
        return 0;
}

/* Looks for an injected fault. A delay (slow=MS) must not hold RM's lock, because it stands for a
 * control that has not arrived yet. */
static enum fault_control fault_of(const struct rm_control_call *c, unsigned *ret_value)
{
        const struct rm_disable_params *p = (const void *)(uintptr_t)c->params;

        if (c->command != CONTROL_DISABLE_CHANNELS || !p || c->params_size != sizeof(*p))
                return CONTROL_WHOLE;
        return fault_control(p->disable, ret_value);
}

static int answer_control(struct rm_control_call *c)
{
        unsigned value = UINT_MAX;

        switch (fault_of(c, &value)) {
        case CONTROL_FORBIDDEN:
                return -EPERM;
        case CONTROL_REFUSED:
                c->status = value;
                return 0;
        case CONTROL_WHOLE:
        case CONTROL_PART:
                break;
        }
        (void)pthread_mutex_lock(&lock);
        c->status = control(c, value);
        (void)pthread_mutex_unlock(&lock);
        return 0;
}

static int answer_version(struct rm_version_call *v)
{
        if (v->command == VERSION_QUERY && !rm_since(530, 30, 2))
                return 0; /* before 530.30.02 this command accepted any version */
        if (v->command == VERSION_QUERY) {
                (void)snprintf(v->version, sizeof(v->version), "%s", rm_version());
                v->reply = 1;
                return 0;
        }
        v->reply = strncmp(v->version, rm_version(), sizeof(v->version)) == 0;
        return v->reply ? 0 : -EINVAL;
}

int rm_answer(unsigned escape, void *argument, size_t bytes)
{
        const struct rm_wrapped_call *w = argument;

        switch (escape) {
        case ESCAPE_WRAPPED:
                if (bytes != sizeof(*w) || w->escape == ESCAPE_WRAPPED)
                        return -EINVAL;
                return rm_answer(w->escape, (void *)(uintptr_t)w->argument, w->size);
        case ESCAPE_ALLOC:
                return answer_alloc(argument, bytes);
        case ESCAPE_FREE:
                return bytes == sizeof(struct rm_free_call) ? answer_free(argument) : -EINVAL;
        case ESCAPE_CONTROL:
                return bytes == sizeof(struct rm_control_call) ? answer_control(argument) : -EINVAL;
        case ESCAPE_VERSION:
                return bytes == sizeof(struct rm_version_call) ? answer_version(argument) : -EINVAL;
        default:
                return -EINVAL;
        }
}
