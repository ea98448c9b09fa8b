/* channels.c: owns the ledger of channels. Must never call the driver: it is written to in the
 * middle of libcuda's own calls. */
#include "preload/channels.h"

#include "base/macros.h"

#define DEPTH_MAX 8 /* client, device, group, channel, and some to spare */

bool channels_class(uint32_t class)
{
        return (class & 0xff) == 0x6f && class >= 0xa06f && class <= 0xffff;
}

static bool is_client(uint32_t class)
{
        return class == RM_CLASS_CLIENT || class == RM_CLASS_CLIENT_NO_EVENTS ||
               class == RM_CLASS_CLIENT_USER;
}

static bool is_kept(uint32_t class)
{
        return is_client(class) || class == RM_CLASS_DEVICE || class == RM_CLASS_SUBDEVICE ||
               class == RM_CLASS_GROUP || channels_class(class);
}

static unsigned bucket(uint32_t client, uint32_t object)
{
        return (client * 31u + object) * 2654435761u >> 23;
}
_Static_assert(CHANNELS_BUCKETS == 1u << (32 - 23), "bucket() gives so many bits");

static const struct channels_object *find(const struct channels *t, uint32_t client,
                                          uint32_t object)
{
        for (uint32_t i = t->buckets[bucket(client, object)]; i > 0; i = t->objects[i - 1].next)
                if (t->objects[i - 1].client == client && t->objects[i - 1].object == object)
                        return &t->objects[i - 1];
        return NULL;
}

/* Freeing an object frees what was made under it; freeing a client, all that it has. */
static bool goes_with(const struct channels *t, const struct channels_object *o, uint32_t object)
{
        for (int depth = 0; o && depth < DEPTH_MAX; depth++) {
                if (o->object == object || o->client == object)
                        return true;
                o = find(t, o->client, o->parent);
        }
        return false;
}

static void unlink_object(struct channels *t, struct channels_object *o)
{
        uint32_t *at = &t->buckets[bucket(o->client, o->object)];

        while (&t->objects[*at - 1] != o)
                at = &t->objects[*at - 1].next;
        *at = o->next;
        t->count -= channels_class(o->class);
        *o = (struct channels_object){0};
}

void channels_remove(struct channels *t, uint32_t client, uint32_t object)
{
        if (!find(t, client, object))
                return;
        /* First all are marked: what lies between an object and its ancestor goes, too. */
        for (uint32_t i = 0; i < t->top; i++) {
                struct channels_object *o = &t->objects[i];

                o->goes = o->used && o->client == client && goes_with(t, o, object);
        }
        for (uint32_t i = 0; i < t->top; i++)
                if (t->objects[i].goes)
                        unlink_object(t, &t->objects[i]);
}

void channels_enter(struct channels *t, const struct channels_made *m)
{
        uint32_t client = is_client(m->class) ? m->object : m->client, i = 0, *head;

        if (!is_kept(m->class))
                return;
        channels_remove(t, client, m->object); /* a handle used again: its end was not seen */
        while (i < t->top && t->objects[i].used)
                i++;
        if (i == CHANNELS_OBJECTS_MAX) {
                t->incomplete = true;
                return;
        }
        t->top = MAX(t->top, i + 1);
        head = &t->buckets[bucket(client, m->object)];
        t->objects[i] = (struct channels_object){.client = client,
                                                 .object = m->object,
                                                 .parent = m->parent,
                                                 .class = m->class,
                                                 .next = *head,
                                                 .fd = m->fd,
                                                 .engine = (uint16_t)m->engine,
                                                 .owner = (uint8_t)m->owner,
                                                 .used = true};
        *head = i + 1;
        t->count += channels_class(m->class);
}

bool channels_concerned(const struct channels *t, uint32_t client, uint32_t object,
                        enum channels_owner owner)
{
        if (!find(t, client, object))
                return false;
        for (uint32_t i = 0; i < t->top; i++) {
                const struct channels_object *o = &t->objects[i];

                if (o->used && o->client == client && o->owner == owner &&
                    channels_class(o->class) && goes_with(t, o, object))
                        return true;
        }
        return false;
}

/* The subdevice of the channel's device: RM takes the control there. */
static const struct channels_object *subdevice_of(const struct channels *t,
                                                  const struct channels_object *channel)
{
        const struct channels_object *device = channel;

        for (int depth = 0; device && device->class != RM_CLASS_DEVICE && depth < DEPTH_MAX;
             depth++)
                device = find(t, device->client, device->parent);
        for (uint32_t i = 0; device && i < t->top; i++) {
                const struct channels_object *o = &t->objects[i];

                if (o->used && o->class == RM_CLASS_SUBDEVICE && o->client == device->client &&
                    o->parent == device->object)
                        return o;
        }
        return NULL;
}

static bool computes(const struct channels *t, const struct channels_object *channel)
{
        const struct channels_object *group = find(t, channel->client, channel->parent);

        return group && group->class == RM_CLASS_GROUP && group->engine >= RM_ENGINE_GRAPHICS &&
               group->engine <= RM_ENGINE_GRAPHICS_LAST;
}

/* False: RM could not be told of it. */
static bool add(const struct channels *t, const struct channels_object *channel,
                struct channels_call *calls, size_t max, size_t *n)
{
        const struct channels_object *subdevice = subdevice_of(t, channel);
        struct channels_call *c = NULL;

        if (!subdevice)
                return false;
        for (size_t i = 0; i < MIN(*n, max) && !c; i++)
                if (calls[i].client == channel->client && calls[i].subdevice == subdevice->object &&
                    calls[i].count < RM_DISABLE_CHANNELS_MAX)
                        c = &calls[i];
        if (!c) {
                if (++*n > max)
                        return false;
                c = &calls[*n - 1];
                *c = (struct channels_call){
                        channel->fd, channel->client, subdevice->object, 0, {0}};
        }
        c->channels[c->count++] = channel->object;
        return true;
}

bool channels_calls(const struct channels *t, enum channels_owner owner,
                    struct channels_call *ret_calls, size_t max, size_t *ret_n)
{
        size_t n = 0;
        bool all = !t->incomplete;

        for (int first = 1; first >= 0; first--)
                for (uint32_t i = 0; i < t->top; i++) {
                        const struct channels_object *o = &t->objects[i];

                        if (o->used && channels_class(o->class) && o->owner == owner &&
                            computes(t, o) == (bool)first)
                                all = add(t, o, ret_calls, max, &n) && all;
                }
        *ret_n = MIN(n, max);
        return all;
}
