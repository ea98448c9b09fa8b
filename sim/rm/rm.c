/* rm.c: the resource manager (RM): the tree of this process's objects, and the answers to requests.
 * Must never take sim.lock, nor call the driver. A control of channels must make no system call but
 * futex and nanosleep. */
#include "sim/rm/rm.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/rm/guard.h"
#include "sim/session/fault.h"

/* First handles that RM chooses. Clients are numbered in the session. */
#define CLIENT_FIRST 0xc1d00001u
#define OBJECT_FIRST 0xcaf00000u

struct object {
        struct object *next;
        uint32_t client, handle, parent, class;
        uint64_t file;          /* the descriptor that made the client */
        unsigned card;          /* the session's number */
        struct rm_entry *entry; /* of a client or a device, so that other processes see it */
        struct channel *channel;
        bool scheduled, goes;
        uint64_t slice_us; /* of a group; the simulated hardware has no slices */
};

/* As in NVIDIA's RM, this lock is held while work on disabled channels comes to a stop, so no
 * object is made or freed during that time. Taken after sim.lock and before the lock of
 * channel.c. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static uint32_t next_object = OBJECT_FIRST;
static uint64_t asking; /* the descriptor of the request that is being answered */

static struct object *find_of_process(uint32_t client, uint32_t handle)
{
        for (struct object *o = objects; o; o = o->next)
                if (o->client == client && o->handle == handle)
                        return o;
        return NULL;
}

/* Finds an object that the request may use. */
static struct object *find(uint32_t client, uint32_t handle)
{
        struct object *o = find_of_process(client, handle);

        return o && o->file == asking ? o : NULL;
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
        o = find_of_process(client, channel);
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

static void hide(struct object *o)
{
        if (o->channel)
                channel_end(o->channel);
        if (o->entry) {
                rm_entry_clear(session_rm(sim.session), o->entry);
                rm_entry_free(o->entry);
        }
}

/* Lets other processes see the object, if they may name it. */
static bool show(struct object *o)
{
        if (is_channel(o->class)) {
                o->channel = channel_new(o->client, o->handle);
                return o->channel;
        }
        if (o->class != CLASS_CLIENT && o->class != CLASS_DEVICE)
                return true;
        o->entry = rm_entry_new(session_rm(sim.session), guard_owner());
        if (o->entry)
                rm_entry_name(o->entry, o->client, o->handle, o->class);
        return o->entry;
}

static enum rm_status add(struct object made)
{
        struct object *o;

        made.file = asking;
        if (!show(&made))
                return RM_NO_MEMORY;
        o = malloc(sizeof(*o));
        if (!o) {
                hide(&made);
                return RM_NO_MEMORY;
        }
        *o = made;
        o->next = objects;
        objects = o;
        return RM_OK;
}

/* As on a card, RM chooses the handle, whatever the request wants. */
static enum rm_status alloc_client(struct rm_alloc_head *a)
{
        const uint32_t handle =
                CLIENT_FIRST + atomic_fetch_add(&session_rm(sim.session)->clients, 1);
        const enum rm_status status =
                add((struct object){.client = handle, .handle = handle, .class = CLASS_CLIENT});

        if (status == RM_OK) {
                a->object = handle;
                a->class = CLASS_CLIENT;
        }
        return status;
}

static enum rm_status alloc(struct rm_alloc_head *a, uint32_t cards)
{
        const struct rm_device_params *params = (const void *)(uintptr_t)a->params;
        const struct object *parent;
        unsigned card;

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
        card = parent->card;
        if (a->class == CLASS_DEVICE) {
                card = params ? params->device : 0;
                if (card >= session_card_count(sim.session))
                        return RM_INVALID_ARGUMENT;
                if (!(cards & 1u << card)) /* which status a card's driver gives is not known */
                        return RM_INSUFFICIENT_PERMISSIONS;
        } else if (!params && (a->class == CLASS_GROUP || is_channel(a->class))) {
                return RM_INVALID_ARGUMENT;
        }
        while (!a->object || find(a->client, a->object))
                a->object = next_object++;
        return add((struct object){.client = a->client,
                                   .handle = a->object,
                                   .parent = a->parent,
                                   .class = a->class,
                                   .card = card,
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
                hide(o);
                free(o);
        }
        return RM_OK;
}

/* ---- controls ---- */

static bool find_channel(uint32_t client, uint32_t channel, struct rm_found *ret)
{
        return rm_find(session_rm(sim.session), client, channel, ret) &&
               atomic_load(&ret->entry->class) == CLASS_CHANNEL;
}

/* Disables or enables the channels of the list. As on a card (H200, driver 580.159.04), a disabling
 * that fails (stops is false) is counted for the channels before the missing one, which run on. */
static enum rm_status switch_all(const struct rm_found *list, uint32_t n, bool disable, bool stops)
{
        struct rm_table *t = session_rm(sim.session);

        for (uint32_t i = 0; i < n; i++)
                if (!(disable ? rm_disable(&list[i], stops) : rm_enable(t, &list[i])))
                        return RM_INVALID_CHANNEL; /* it has vanished meanwhile */
        for (uint32_t i = 0; i < n && disable && stops; i++)
                rm_await_stop(t, &list[i], &sim.exiting);
        return RM_OK;
}

/* Disables or enables channels. most: an injected fault makes the control stop after this number of
 * channels, with a time-out; UINT_MAX: no fault. */
static enum rm_status disable(const struct object *o, const struct rm_disable_params *p,
                              unsigned most)
{
        const unsigned device = session_device_of(sim.session, o->card);
        struct session_counters *n = &session_own(sim.session, device)->counters;
        struct rm_found list[RM_DISABLE_MOST];
        enum rm_status status;
        uint32_t before = 0;

        if (p->event)
                return RM_INSUFFICIENT_PERMISSIONS;
        if (p->count == 0)
                return RM_INVALID_PARAMETERS;
        if (p->count > RM_DISABLE_MOST)
                return RM_INVALID_ARGUMENT;
        if (p->only_scheduling || p->rewind) /* only real cards support these options */
                return RM_NOT_SUPPORTED;
        while (before < p->count &&
               find_channel(p->clients[before], p->channels[before], &list[before]))
                before++;
        if (before < p->count) {
                (void)switch_all(list, before, p->disable, false);
                return RM_INVALID_CHANNEL;
        }
        status = switch_all(list, MIN(p->count, most), p->disable, true);
        if (status != RM_OK)
                return status;
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
        const struct object *o = find_of_process(p->client, p->channel);
        struct rm_found f;

        if (!rm_find(session_rm(sim.session), p->client, p->client, &f))
                return RM_INVALID_CLIENT;
        if (!find_channel(p->client, p->channel, &f))
                return RM_INVALID_CHANNEL;
        p->bound = true;
        p->enabled = !rm_stopped(f.entry);
        p->scheduled = !o || o->scheduled;
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

/* ---- copies ---- */

/* No object can be copied, but the status says whether the source exists. */
static enum rm_status dup_object(const struct rm_dup_call *d)
{
        struct rm_found f;

        if (!find(d->client, d->client))
                return RM_INVALID_CLIENT;
        if (!rm_find(session_rm(sim.session), d->source_client, d->source_client, &f))
                return RM_INVALID_SOURCE;
        if (!find_of_process(d->source_client, d->source) &&
            (!rm_find(session_rm(sim.session), d->source_client, d->source, &f) ||
             atomic_load(&f.entry->class) == CLASS_CHANNEL))
                return RM_NOT_FOUND;
        return RM_INVALID_ARGUMENT;
}

/* ---- requests ---- */

static void begin(const struct rm_caller *from)
{
        (void)pthread_mutex_lock(&lock);
        asking = from->file;
}

static int answer_alloc(const struct rm_caller *from, void *argument, size_t bytes)
{
        for (int is_long = 0; is_long < 2; is_long++) {
                struct rm_alloc_form form = rm_alloc_form(is_long);
                uint32_t status;

                if (bytes != form.bytes)
                        continue;
                begin(from);
                status = alloc(argument, from->cards);
                (void)pthread_mutex_unlock(&lock);
                memcpy((char *)argument + form.status, &status, sizeof(status));
                return 0;
        }
        return -EINVAL;
}

static int answer_free(const struct rm_caller *from, struct rm_free_call *f)
{
        begin(from);
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

static int answer_control(const struct rm_caller *from, struct rm_control_call *c)
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
        begin(from);
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

static int answer_dup(const struct rm_caller *from, struct rm_dup_call *d)
{
        begin(from);
        d->status = dup_object(d);
        (void)pthread_mutex_unlock(&lock);
        return 0;
}

void rm_close(uint64_t file)
{
        struct object *o;

        (void)pthread_mutex_lock(&lock);
        asking = file;
        do {
                o = objects;
                while (o && (o->file != file || o->class != CLASS_CLIENT))
                        o = o->next;
                if (o)
                        (void)free_object(o->client, o->handle);
        } while (o);
        (void)pthread_mutex_unlock(&lock);
}

int rm_answer(const struct rm_caller *from, unsigned escape, void *argument, size_t bytes)
{
        const struct rm_wrapped_call *w = argument;

        switch (escape) {
        case ESCAPE_WRAPPED:
                if (bytes != sizeof(*w) || w->escape == ESCAPE_WRAPPED)
                        return -EINVAL;
                return rm_answer(from, w->escape, (void *)(uintptr_t)w->argument, w->size);
        case ESCAPE_ALLOC:
                return answer_alloc(from, argument, bytes);
        case ESCAPE_FREE:
                return bytes == sizeof(struct rm_free_call) ? answer_free(from, argument) : -EINVAL;
        case ESCAPE_CONTROL:
                return bytes == sizeof(struct rm_control_call) ? answer_control(from, argument)
                                                               : -EINVAL;
        case ESCAPE_DUP:
                return bytes == sizeof(struct rm_dup_call) ? answer_dup(from, argument) : -EINVAL;
        case ESCAPE_VERSION:
                return bytes == sizeof(struct rm_version_call) ? answer_version(argument) : -EINVAL;
        default:
                return -EINVAL;
        }
}
