/* channels.c: owns the ledger of channels. Must never call the driver: the ledger is updated in the
 * middle of libcuda's own calls. */
#include "preload/rm/channels.h"

#include "base/macros.h"

bool channels_class(uint32_t class)
{
        return (class & 0xff) == 0x6f && class >= 0xa06f && class <= 0xffff;
}

bool channels_client(uint32_t class)
{
        return class == RM_CLASS_CLIENT || class == RM_CLASS_CLIENT_NO_EVENTS ||
               class == RM_CLASS_CLIENT_USER;
}

static bool is_kept(uint32_t class)
{
        return channels_client(class) || class == RM_CLASS_DEVICE || class == RM_CLASS_SUBDEVICE ||
               class == RM_CLASS_GROUP || channels_class(class);
}

static unsigned bucket(uint32_t client, uint32_t object)
{
        return (client * 31u + object) * 2654435761u >> 23;
}
_Static_assert(CHANNELS_BUCKETS == 1u << (32 - 23), "bucket() gives so many bits");

/* Returns the index of an object; 0: not in the ledger. */
static uint32_t find(const struct channels *t, uint32_t client, uint32_t object)
{
        uint32_t i = t->buckets[bucket(client, object)];

        while (i && (t->objects[i - 1].client != client || t->objects[i - 1].object != object))
                i = t->objects[i - 1].next;
        return i;
}

/* ---- objects come and go ---- */

static void take_from_bucket(struct channels *t, uint32_t i)
{
        const struct channels_object *o = &t->objects[i - 1];
        uint32_t *at = &t->buckets[bucket(o->client, o->object)];

        while (*at != i)
                at = &t->objects[*at - 1].next;
        *at = o->next;
}

static void take_from_parent(struct channels *t, uint32_t i)
{
        const struct channels_object *o = &t->objects[i - 1];
        uint32_t *at;

        if (!o->up)
                return;
        if (t->objects[o->up - 1].subdevice == i)
                t->objects[o->up - 1].subdevice = 0;
        for (at = &t->objects[o->up - 1].child; *at != i;)
                at = &t->objects[*at - 1].sibling;
        *at = o->sibling;
}

/* Removes an object and all objects made under it, because RM frees those too. */
static void drop(struct channels *t, uint32_t i)
{
        struct channels_object *o = &t->objects[i - 1];

        while (o->child)
                drop(t, o->child);
        take_from_bucket(t, i);
        take_from_parent(t, i);
        t->count -= channels_class(o->class);
        *o = (struct channels_object){.next = t->free};
        t->free = i;
}

void channels_remove(struct channels *t, uint32_t client, uint32_t object)
{
        uint32_t i = find(t, client, object);

        if (i)
                drop(t, i);
}

/* Returns the index of an unused entry; 0: there is none. */
static uint32_t place(struct channels *t)
{
        uint32_t i = t->free;

        if (i)
                t->free = t->objects[i - 1].next;
        else if (t->top < CHANNELS_OBJECTS_MAX)
                i = ++t->top;
        return i;
}

void channels_enter(struct channels *t, const struct channels_made *m)
{
        uint32_t client = channels_client(m->class) ? m->object : m->client, up, i, *head;
        struct channels_object *o;

        if (!is_kept(m->class))
                return;
        channels_remove(
                t, client,
                m->object); /* if the handle is reused, we missed the end of the old object */
        i = place(t);
        if (!i) {
                t->incomplete = true;
                return;
        }
        /* If the parent is not recorded, the object counts as made under the client. */
        up = channels_client(m->class) ? 0 : find(t, client, m->parent);
        if (!up && !channels_client(m->class))
                up = find(t, client, client);
        o = &t->objects[i - 1];
        head = &t->buckets[bucket(client, m->object)];
        *o = (struct channels_object){.client = client,
                                      .object = m->object,
                                      .class = m->class,
                                      .next = *head,
                                      .up = up,
                                      .sibling = up ? t->objects[up - 1].child : 0,
                                      .fd = m->fd,
                                      .engine = (uint16_t)m->engine,
                                      .device = (uint16_t)m->device,
                                      .owner = (uint8_t)m->owner,
                                      .used = true};
        *head = i;
        t->count += channels_class(m->class);
        if (!up)
                return;
        t->objects[up - 1].child = i;
        if (m->class == RM_CLASS_SUBDEVICE)
                t->objects[up - 1].subdevice = i;
        if (t->objects[up - 1].class == RM_CLASS_GROUP)
                o->owner = t->objects[up - 1].owner;
}

struct channels_object *channels_find(struct channels *t, uint32_t client, uint32_t object)
{
        uint32_t i = find(t, client, object);

        return i ? &t->objects[i - 1] : NULL;
}

static bool has_channel(const struct channels *t, const struct channels_object *o)
{
        bool found = channels_class(o->class);

        for (uint32_t i = o->child; i && !found; i = t->objects[i - 1].sibling)
                found = has_channel(t, &t->objects[i - 1]);
        return found;
}

bool channels_under(struct channels *t, uint32_t client, uint32_t object)
{
        const struct channels_object *o = channels_find(t, client, object);

        return o && has_channel(t, o);
}

/* ---- calls for RM ---- */

static const struct channels_object *device_of(const struct channels *t,
                                               const struct channels_object *channel)
{
        const struct channels_object *o = channel;

        while (o->up && o->class != RM_CLASS_DEVICE)
                o = &t->objects[o->up - 1];
        return o;
}

uint32_t channels_device(const struct channels *t, const struct channels_object *channel)
{
        return device_of(t, channel)->device;
}

/* Returns the subdevice of the channel's device: RM's control names a subdevice and its channels.
 */
static const struct channels_object *subdevice_of(const struct channels *t,
                                                  const struct channels_object *channel)
{
        const struct channels_object *o = device_of(t, channel);

        return o->subdevice ? &t->objects[o->subdevice - 1] : NULL;
}

static bool is_computing(const struct channels_object *group)
{
        return group->class == RM_CLASS_GROUP && group->engine >= RM_ENGINE_GRAPHICS &&
               group->engine <= RM_ENGINE_GRAPHICS_LAST;
}

static bool computes(const struct channels *t, const struct channels_object *channel)
{
        return channel->up && is_computing(&t->objects[channel->up - 1]);
}

const struct channels_object *channels_next_group(const struct channels *t,
                                                  enum channels_owner owner, uint32_t *at)
{
        while (*at < t->top) {
                const struct channels_object *o = &t->objects[(*at)++];

                if (o->used && o->owner == owner && is_computing(o))
                        return o;
        }
        return NULL;
}

/* Adds a channel to a call for its subdevice. False: the subdevice is not known, or there are too
 * many calls. */
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

static bool is_asked(const struct channels_object *o, enum channels_owner owner,
                     enum channels_which which)
{
        return o->used && channels_class(o->class) && o->owner == owner &&
               (which == CHANNELS_ALL || o->off == (which == CHANNELS_OFF));
}

bool channels_calls(const struct channels *t, enum channels_owner owner, enum channels_which which,
                    struct channels_call *ret_calls, size_t max, size_t *ret_n)
{
        size_t n = 0;
        bool all = !t->incomplete;

        for (int first = 1; first >= 0; first--)
                for (uint32_t i = 0; i < t->top; i++) {
                        const struct channels_object *o = &t->objects[i];

                        if (is_asked(o, owner, which) && computes(t, o) == (bool)first)
                                all = add(t, o, ret_calls, max, &n) && all;
                }
        *ret_n = MIN(n, max);
        return all;
}

bool channels_call_of(const struct channels *t, uint32_t client, uint32_t object,
                      enum channels_owner owner, struct channels_call *ret)
{
        uint32_t i = find(t, client, object);
        const struct channels_object *o = i ? &t->objects[i - 1] : NULL;
        size_t n = 0;

        return o && channels_class(o->class) && o->owner == owner && add(t, o, ret, 1, &n);
}

void channels_note(struct channels *t, const struct channels_call *c, bool off)
{
        for (uint32_t i = 0; i < c->count; i++) {
                struct channels_object *o = channels_find(t, c->client, c->channels[i]);

                if (o)
                        o->off = off;
        }
}
