/* user_names.c: owns the names of users and tenants. Must never look up a name twice: top asks each
 * second. */
#include "client/figures/user_names.h"

#include <pwd.h>
#include <stdio.h>

#define USER_MAX  64
#define NAMES_MAX 64 /* further users are looked up each time */

static struct known {
        uid_t uid;
        json_t *name;
} known[NAMES_MAX];
static unsigned n_known;

static json_t *look_up(uid_t uid)
{
        const struct passwd *pw = getpwuid(uid);
        char number[24];

        if (pw)
                return json_string(pw->pw_name);
        (void)snprintf(number, sizeof(number), "%lu", (unsigned long)uid);
        return json_string(number);
}

/* Returns a new reference. */
static json_t *name_of(const json_t *number)
{
        const uid_t uid = (uid_t)json_integer_value(number);

        if (!json_is_integer(number))
                return json_null();
        for (unsigned i = 0; i < n_known; i++)
                if (known[i].uid == uid)
                        return json_incref(known[i].name);
        if (n_known == NAMES_MAX)
                return look_up(uid);
        known[n_known] = (struct known){uid, look_up(uid)};
        return json_incref(known[n_known++].name);
}

const char *users_text(uint64_t uid)
{
        static char text[USER_MAX];
        json_t *number = json_integer((json_int_t)uid), *name = name_of(number);

        (void)snprintf(text, sizeof(text), "%s",
                       uid < UINT32_MAX ? json_string_value(name) : "another user");
        json_decref(name);
        json_decref(number);
        return text;
}

/* Returns a new reference: NAMESPACE/NAME if the daemon was told, else the pod's uid; or the job.
 */
static json_t *tenant_of(const json_t *client)
{
        const char *namespace = json_string_value(json_object_get(client, "pod_namespace"));
        const char *name = json_string_value(json_object_get(client, "pod_name"));
        const char *job = json_string_value(json_object_get(client, "slurm_job"));
        json_t *pod = json_object_get(client, "pod");

        if (name && namespace)
                return json_sprintf("%s/%s", namespace, name);
        if (name)
                return json_string(name);
        if (job)
                return json_sprintf("job %s", job);
        return pod ? json_incref(pod) : json_null();
}

void users_name(json_t *status)
{
        json_t *gpu, *client, *other, *job;
        size_t i, k;

        json_array_foreach (json_object_get(status, "jobs"), i, job)
                (void)json_object_set_new(job, "user", name_of(json_object_get(job, "uid")));
        json_array_foreach (json_object_get(status, "gpus"), i, gpu) {
                json_array_foreach (json_object_get(gpu, "others"), k, other)
                        (void)json_object_set_new(other, "user",
                                                  name_of(json_object_get(other, "uid")));
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        (void)json_object_set_new(client, "user",
                                                  name_of(json_object_get(client, "uid")));
                        (void)json_object_set_new(client, "tenant", tenant_of(client));
                }
        }
}
