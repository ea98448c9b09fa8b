/* classes.c: owns the keys of a class, which programs it matches, and the checks over all classes.
 * Must never let a program enter a class of a shared daemon by the name that it chose alone. */
#include "daemon/setup/classes.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"

#define SECTION_NAME_MAX 31
#define PRIORITY_UNSET   INT_MIN /* until classes_check() */

/* ---- the lists of a class ---- */

/* Makes room for one more item of a list that grows by doubling. */
static int grow(void *list_of_any, unsigned n, size_t size)
{
        void **list = list_of_any;
        void *bigger;

        if (n & (n - 1)) /* no power of two: there is room */
                return 0;
        bigger = realloc(*list, (n ? 2 * (size_t)n : 1) * size);
        if (!bigger)
                return -ENOMEM;
        *list = bigger;
        return 0;
}

static int parse_uid(const char *text, uid_t *ret)
{
        uint64_t n;

        if (units_parse_count(text, &n) < 0 || n >= UINT32_MAX)
                return -EINVAL;
        *ret = (uid_t)n;
        return 0;
}

/* Parses a name, a number or a range of numbers. */
static int parse_uids(const char *text, struct class_uids *ret)
{
        const struct passwd *user;
        const char *dash = strchr(text, '-');
        char first[16];

        if (!isdigit((unsigned char)text[0])) {
                user = text[0] ? getpwnam(text) : NULL;
                if (!user)
                        return text[0] ? -ENXIO : -EINVAL;
                *ret = (struct class_uids){user->pw_uid, user->pw_uid};
                return 0;
        }
        if (!dash) {
                if (parse_uid(text, &ret->first) < 0)
                        return -EINVAL;
                ret->last = ret->first;
                return 0;
        }
        (void)snprintf(first, sizeof(first), "%.*s", (int)MIN(dash - text, 15), text);
        if (parse_uid(first, &ret->first) < 0 || parse_uid(dash + 1, &ret->last) < 0)
                return -EINVAL;
        return ret->first <= ret->last ? 0 : -EINVAL;
}

static int add_users(void *field, const char *text)
{
        struct class_users *users = field;
        struct class_uids uids;
        int r = parse_uids(text, &uids);

        if (r == 0)
                r = grow(&users->list, users->n, sizeof(*users->list));
        if (r == 0)
                users->list[users->n++] = uids;
        return r;
}

static void clear_users(void *field)
{
        struct class_users *users = field;

        free(users->list);
        *users = (struct class_users){0};
}

static int add_pattern(void *field, const char *text)
{
        struct class_patterns *patterns = field;
        char *copy;

        if (!text[0])
                return -EINVAL;
        if (grow(&patterns->list, patterns->n, sizeof(*patterns->list)) < 0)
                return -ENOMEM;
        copy = strdup(text);
        if (!copy)
                return -ENOMEM;
        patterns->list[patterns->n++] = copy;
        return 0;
}

static int add_pod(void *field, const char *text)
{
        char id[TENANT_ID_MAX + 1];

        return tenant_read_pod(text, strlen(text), id) ? add_pattern(field, id) : -EINVAL;
}

static int add_job(void *field, const char *text)
{
        char id[TENANT_ID_MAX + 1];

        return tenant_read_job(text, strlen(text), id) ? add_pattern(field, id) : -EINVAL;
}

static int add_sluid(void *field, const char *text)
{
        char id[TENANT_ID_MAX + 1];

        return tenant_read_sluid(text, strlen(text), id) ? add_pattern(field, id) : -EINVAL;
}

/* Takes only a pattern that begins with '/': any other would match no path. */
static int add_path(void *field, const char *text)
{
        return text[0] == '/' ? add_pattern(field, text) : -EINVAL;
}

static void clear_patterns(void *field)
{
        struct class_patterns *patterns = field;

        for (unsigned i = 0; i < patterns->n; i++)
                free(patterns->list[i]);
        free(patterns->list);
        *patterns = (struct class_patterns){0};
}

/* ---- the keys ---- */

#define OF_CLASS(member) offsetof(struct class, member), sizeof(((struct class *)0)->member)
#define AT(member) \
        offsetof(struct class_settings, member), sizeof(((struct class_settings *)0)->member)
#define AS_DAEMON "as the daemon"

static const struct value_kind user_list = {
        add_users, NULL, "user", "names, numbers or ranges such as 2000-2999, with commas",
        clear_users};
static const struct value_kind name_list = {add_pattern, NULL, "pattern",
                                            "patterns such as train*, with commas", clear_patterns};
static const struct value_kind cgroup_list = {
        add_path, NULL, "path", "patterns such as /system.slice/train*.service, with commas",
        clear_patterns};

static const struct value_kind pod_list = {
        add_pod, NULL, "pod", "uids such as 0f9b3c1e-5a0d-4c6e-9d55-6f1f3e2a7b10, with commas",
        clear_patterns};
static const struct value_kind job_list = {add_job, NULL, "job", "numbers of jobs, with commas",
                                           clear_patterns};
static const struct value_kind sluid_list = {
        add_sluid, NULL, "SLUID", "SLUIDs such as sEKNKTV3WPV500, with commas", clear_patterns};

/* Takes only what Kubernetes' API server allows, because the text ends up on terminals and in
 * metrics. */
static int parse_label(void *field, const char *text)
{
        const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.");

        if (n == 0 || text[n] || n >= POD_NAME_MAX)
                return -EINVAL;
        memcpy(field, text, n + 1);
        return 0;
}

static const struct value_kind label = {parse_label, NULL, "name",
                                        "1 to 160 small letters, digits, '-' and '.'", NULL};

static int parse_mode(void *field, const char *text)
{
        const bool exclusive = strcmp(text, "exclusive") == 0;

        if (!exclusive && strcmp(text, "auto") != 0)
                return -EINVAL;
        *(bool *)field = exclusive;
        return 0;
}

static const struct value_kind mode = {parse_mode, NULL, "mode", "auto or exclusive", NULL};

static const struct value_key match_keys[] = {
        {"user", &user_list, OF_CLASS(users), "any", "which users' programs are of the class",
         VALUE_AT_RELOAD},
        {"name", &name_list, OF_CLASS(names), "any", "what the program itself is called",
         VALUE_AT_RELOAD},
        {"cgroup", &cgroup_list, OF_CLASS(cgroups), "any",
         "in which cgroup, or below which, the program runs", VALUE_AT_RELOAD},
        {"pod", &pod_list, OF_CLASS(pods), "any",
         "uids of the Kubernetes pods whose programs are of the class", VALUE_AT_RELOAD},
        {"slurm_job", &job_list, OF_CLASS(jobs), "any",
         "numbers of the Slurm jobs whose programs are of the class", VALUE_AT_RELOAD},
        {"slurm_sluid", &sluid_list, OF_CLASS(sluids), "none",
         "how Slurm also names the one job of slurm_job", VALUE_AT_RELOAD},
};

#define OF_POD(member) offsetof(struct class_pod, member), sizeof(((struct class_pod *)0)->member)

static const struct value_key pod_keys[] = {
        {"namespace", &label, OF_POD(namespace), "unknown", "the pod's namespace", VALUE_AT_RELOAD},
        {"name", &label, OF_POD(name), "unknown", "the pod's name", VALUE_AT_RELOAD},
};

/* The first CLASS_ALONE rows are for classes alone; the others are for [default], too. A program
 * can have values of its own for OWN_KEYS of them, from OWN_FIRST on. */
#define CLASS_ALONE 2
#define OWN_FIRST   1
#define OWN_KEYS    5
static const struct value_key settings_keys[] = {
        {"group", &value_bool, AT(group), "no", "all programs of the class run together, as one",
         VALUE_AT_RELOAD},
        {"minimum", &value_percent_95, AT(minimum_permille), "none",
         "the share of the time that is kept for the class", VALUE_AT_RELOAD},
        {"maximum", &value_percent_from_1, AT(maximum_permille), "100%",
         "the most that it gets of the time, even if nobody else computes", VALUE_AT_RELOAD},
        {"weight", &value_weight, AT(weight_permille), "1",
         "its part of the time, compared with others", VALUE_AT_RELOAD},
        {"memory_cap", &value_size, AT(memory_cap), "none",
         "the most memory that its programs may allocate on a card", VALUE_AT_RELOAD},
        {"priority", &value_priority, AT(priority), "0",
         "the priority of programs that ask for none", VALUE_AT_RELOAD},
        {"priority_max", &value_priority, AT(priority_max), "0, or priority",
         "the highest priority that its programs may ask for", VALUE_AT_RELOAD},
        {"mode", &mode, AT(exclusive), AS_DAEMON,
         "exclusive: its programs run alone on a card, and others wait meanwhile", VALUE_AT_RELOAD},
        {"quantum", &value_quantum_or_auto, AT(quantum_ns), AS_DAEMON,
         "the longest turn while others wait", VALUE_AT_RELOAD},
        {"idle_release", &value_duration_or_auto, AT(idle_release_ns), AS_DAEMON,
         "how long a program is idle before it gives way", VALUE_AT_RELOAD},
        {"grace", &value_duration, AT(grace_ns), AS_DAEMON,
         "how long a program may take to give way before it is overdue", VALUE_AT_RELOAD},
        {"kill_overdue", &value_answer, AT(kill_overdue), AS_DAEMON,
         "kill a program that does not give way within its grace", VALUE_AT_RELOAD},
        {"mps", &value_answer, AT(mps), AS_DAEMON,
         "start MPS servers for programs that ask for one", VALUE_AT_RELOAD},
};

bool class_has_list(const char *key)
{
        const struct value_key *k = values_find(match_keys, ARRAY_SIZE(match_keys), key);

        return k && k->kind->clear;
}

int class_set(struct class *class, const char *key, const char *text, bool more,
              char error[static CONFIG_ERROR_MAX])
{
        int r = values_set(match_keys, ARRAY_SIZE(match_keys), class, key, text, more, error);

        return r != -ENOENT ? r
                            : values_set(settings_keys, ARRAY_SIZE(settings_keys), &class->settings,
                                         key, text, more, error);
}

int class_set_unmatched(struct class_settings *s, const char *key, const char *text,
                        char error[static CONFIG_ERROR_MAX])
{
        return values_set(settings_keys + CLASS_ALONE, ARRAY_SIZE(settings_keys) - CLASS_ALONE, s,
                          key, text, false, error);
}

int class_set_pod(struct class_pod *pod, const char *key, const char *text,
                  char error[static CONFIG_ERROR_MAX])
{
        return values_set(pod_keys, ARRAY_SIZE(pod_keys), pod, key, text, false, error);
}

const struct value_key *class_own_keys(size_t *ret_n)
{
        *ret_n = OWN_KEYS;
        return settings_keys + OWN_FIRST;
}

void classes_print_help(FILE *out)
{
        values_print_help(match_keys, ARRAY_SIZE(match_keys), out);
        values_print_help(settings_keys, ARRAY_SIZE(settings_keys), out);
}

void classes_print_pod_help(FILE *out)
{
        values_print_help(pod_keys, ARRAY_SIZE(pod_keys), out);
}

/* ---- the classes ---- */

static const struct class_settings unless_set = {
        .maximum_permille = 1000,
        .weight_permille = 1000,
        .priority_max = PRIORITY_UNSET,
        .quantum_ns = CLASS_AS_DAEMON,
        .idle_release_ns = CLASS_AS_DAEMON,
        .grace_ns = CLASS_AS_DAEMON,
        .kill_overdue = -1,
        .mps = -1,
};

void classes_init(struct classes *c)
{
        *c = (struct classes){.unmatched = unless_set};
}

void classes_free(struct classes *c)
{
        for (unsigned i = 0; i < c->n; i++) {
                clear_users(&c->list[i].users);
                clear_patterns(&c->list[i].names);
                clear_patterns(&c->list[i].cgroups);
                clear_patterns(&c->list[i].pods);
                clear_patterns(&c->list[i].jobs);
                clear_patterns(&c->list[i].sluids);
        }
        free(c->pods);
        free(c->by_tenant);
        free(c->others);
        for (unsigned i = 0; i < c->n_files; i++)
                free(c->files[i]);
        free(c->files);
        free(c->list);
        *c = (struct classes){0};
}

bool classes_is_name(const char *name)
{
        size_t n =
                strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

        return n > 0 && n <= SECTION_NAME_MAX && name[n] == '\0';
}

const char *classes_keep_file(struct classes *c, const char *file)
{
        char *copy;

        if (grow(&c->files, c->n_files, sizeof(*c->files)) < 0)
                return NULL;
        copy = strdup(file);
        if (copy)
                c->files[c->n_files++] = copy;
        return copy;
}

const struct class *classes_named(const struct classes *c, const char *name)
{
        for (unsigned i = 0; i < c->n; i++)
                if (strcmp(c->list[i].name, name) == 0)
                        return &c->list[i];
        return NULL;
}

int classes_begin(struct classes *c, const char *name, struct class **ret,
                  char error[static CONFIG_ERROR_MAX])
{
        const struct class *found = classes_named(c, name);
        struct class *class;

        if (found) {
                *ret = &c->list[found - c->list];
                return 0;
        }
        if (c->n == CLASSES_MAX) {
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "the files have more than %d classes: remove some", CLASSES_MAX);
                return -E2BIG;
        }
        if (grow(&c->list, c->n, sizeof(*c->list)) < 0) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "no memory for one more class");
                return -ENOMEM;
        }
        class = &c->list[c->n++];
        *class = (struct class){.settings = unless_set};
        (void)snprintf(class->name, sizeof(class->name), "%s", name);
        *ret = class;
        return 0;
}

/* ---- the names of pods ---- */

int classes_begin_pod(struct classes *c, const char *uid, struct class_pod **ret,
                      char error[static CONFIG_ERROR_MAX])
{
        struct class_pod pod = {.order = c->n_pods};

        if (!tenant_read_pod(uid, strlen(uid), pod.uid)) {
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "malformed pod \"%.100s\": write its uid, such as "
                               "0f9b3c1e-5a0d-4c6e-9d55-6f1f3e2a7b10",
                               uid);
                return -EINVAL;
        }
        if (c->n_pods == PODS_MAX) {
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "the files have more than %d pods: remove some", PODS_MAX);
                return -E2BIG;
        }
        if (grow(&c->pods, c->n_pods, sizeof(*c->pods)) < 0) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "no memory for one more pod");
                return -ENOMEM;
        }
        c->pods[c->n_pods] = pod;
        *ret = &c->pods[c->n_pods++];
        return 0;
}

static int by_uid(const void *a, const void *b)
{
        const struct class_pod *x = a, *y = b;
        const int r = strcmp(x->uid, y->uid);

        return r ? r : (x->order > y->order) - (x->order < y->order);
}

const struct class_pod *classes_pod(const struct classes *c, const struct tenant *tenant)
{
        unsigned first = 0, end = c->n_pods;

        /* Finds the place behind the last one with this uid. */
        while (tenant->kind == TENANT_POD && first < end) {
                const unsigned middle = first + (end - first) / 2;

                if (strcmp(c->pods[middle].uid, tenant->id) <= 0)
                        first = middle + 1;
                else
                        end = middle;
        }
        return first > 0 && strcmp(c->pods[first - 1].uid, tenant->id) == 0 ? &c->pods[first - 1]
                                                                            : NULL;
}

/* ---- the index ---- */

static int by_id(const void *a, const void *b)
{
        const struct class_entry *x = a, *y = b;
        const int r = strcmp(x->id, y->id);

        return r ? r : (x->class > y->class) - (x->class < y->class);
}

static bool names_tenants(const struct class *class)
{
        return class->pods.n || class->jobs.n;
}

static void add_entries(struct classes *c, const struct class_patterns *ids, unsigned class)
{
        for (unsigned i = 0; i < ids->n; i++)
                c->by_tenant[c->n_by_tenant++] = (struct class_entry){ids->list[i], class};
}

/* Makes the index once for each reading of the files: an order changes settings, but no classes. */
static int make_index(struct classes *c, char error[static CONFIG_ERROR_MAX])
{
        size_t n = 0;

        if (c->others)
                return 0;
        for (unsigned i = 0; i < c->n; i++)
                n += c->list[i].pods.n + c->list[i].jobs.n + c->list[i].sluids.n;
        c->by_tenant = calloc(n + 1, sizeof(*c->by_tenant));
        c->others = calloc(c->n + 1ul, sizeof(*c->others));
        if (!c->by_tenant || !c->others) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "no memory for %u classes", c->n);
                return -ENOMEM;
        }
        for (unsigned i = 0; i < c->n; i++) {
                const struct class *class = &c->list[i];

                add_entries(c, &class->pods, i);
                add_entries(c, &class->jobs, i);
                add_entries(c, &class->sluids, i);
                if (!names_tenants(class) && classes_matches_by_key(class))
                        c->others[c->n_others++] = i;
                c->by_cgroup |= class->cgroups.n > 0;
        }
        qsort(c->by_tenant, c->n_by_tenant, sizeof(*c->by_tenant), by_id);
        if (c->n_pods)
                qsort(c->pods, c->n_pods, sizeof(*c->pods), by_uid);
        return 0;
}

/* ---- the checks over the whole ---- */

/* Returns a sentence on what is wrong with these settings; NULL: nothing is. */
static const char *objection(struct class_settings *s)
{
        if (s->priority_max == PRIORITY_UNSET)
                s->priority_max = MAX(s->priority, 0);
        if (s->priority > s->priority_max)
                return "priority is above priority_max";
        return s->minimum_permille > s->maximum_permille ? "minimum is above maximum" : NULL;
}

static const char *objection_to_jobs(const struct class *class)
{
        return class->sluids.n && class->jobs.n != 1
                       ? "slurm_sluid names one job, so slurm_job has to be one number"
                       : NULL;
}

static bool is_reached_by_name_alone(const struct class *class)
{
        return class->names.n && !class->users.n && !class->cgroups.n && !names_tenants(class);
}

int classes_check(struct classes *c, unsigned room_permille, bool shared,
                  char error[static CONFIG_ERROR_MAX])
{
        const char *wrong = objection(&c->unmatched);
        unsigned sum = 0;

        if (wrong) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s: [default]: %s",
                               c->n_files ? c->files[c->n_files - 1] : "", wrong);
                return -EINVAL;
        }
        for (unsigned i = 0; i < c->n; i++) {
                struct class *class = &c->list[i];
                char text[200];

                wrong = objection(&class->settings);
                if (!wrong)
                        wrong = objection_to_jobs(class);
                sum += class->settings.minimum_permille;
                if (!wrong && shared && is_reached_by_name_alone(class))
                        wrong = "a program of any user can choose its name, so in a shared daemon "
                                "a class needs user, cgroup, pod or slurm_job besides name";
                if (!wrong && sum > room_permille) {
                        (void)snprintf(text, sizeof(text),
                                       "with this one the minima of all classes are %u.%u%%, but "
                                       "%u.%u%% can be kept (100%% less handoff_share)",
                                       sum / 10, sum % 10, room_permille / 10, room_permille % 10);
                        wrong = text;
                }
                if (!wrong)
                        continue;
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.160s:%u: class %.40s: %.280s",
                               class->file, class->line, class->name, wrong);
                return -EINVAL;
        }
        return make_index(c, error);
}

/* ---- matching ---- */

bool classes_matches_by_key(const struct class *class)
{
        return class->users.n || class->names.n || class->cgroups.n || names_tenants(class);
}

static bool has_user(const struct class_users *users, uid_t uid)
{
        for (unsigned i = 0; i < users->n; i++)
                if (uid >= users->list[i].first && uid <= users->list[i].last)
                        return true;
        return users->n == 0;
}

static bool fits(const struct class_patterns *patterns, const char *text, int flags)
{
        for (unsigned i = 0; i < patterns->n; i++)
                if (fnmatch(patterns->list[i], text, flags) == 0)
                        return true;
        return false;
}

static bool has_name(const struct class_patterns *patterns, const char *name)
{
        return patterns->n == 0 || (name && fits(patterns, name, 0));
}

/* Tries the path and each of its ancestors. No pattern's * spans two folders: a user may name the
 * cgroups below his own, and could otherwise look like another user. */
static bool has_cgroup(const struct class_patterns *patterns, const char *cgroup)
{
        char path[PATH_MAX], *slash;
        int n;

        if (patterns->n == 0)
                return true;
        n = cgroup ? snprintf(path, sizeof(path), "%s", cgroup) : -1;
        if (n < 0 || n >= (int)sizeof(path))
                return false;
        for (;;) {
                if (fits(patterns, *path ? path : "/", FNM_PATHNAME))
                        return true;
                slash = strrchr(path, '/');
                if (!slash)
                        return false;
                *slash = '\0';
        }
}

static bool has_tenant(const struct class_patterns *ids, enum tenant_kind kind,
                       const struct tenant *tenant)
{
        if (ids->n == 0)
                return true;
        for (unsigned i = 0; tenant && tenant->kind == kind && i < ids->n; i++)
                if (strcmp(ids->list[i], tenant->id) == 0)
                        return true;
        return false;
}

static bool matches(const struct class *class, const struct class_subject *who)
{
        return has_user(&class->users, who->uid) && has_name(&class->names, who->name) &&
               has_cgroup(&class->cgroups, who->cgroup) &&
               has_tenant(&class->pods, TENANT_POD, who->tenant) &&
               has_tenant(&class->jobs, TENANT_JOB, who->tenant);
}

/* Returns where the tenant's entries begin, or would begin. */
static unsigned first_entry(const struct classes *c, const struct tenant *tenant)
{
        unsigned first = 0, end = c->n_by_tenant;

        while (first < end) {
                const unsigned middle = first + (end - first) / 2;

                if (strcmp(c->by_tenant[middle].id, tenant->id) < 0)
                        first = middle + 1;
                else
                        end = middle;
        }
        return first;
}

struct tenant classes_tenant(const struct classes *c, const struct tenant *tenant)
{
        const bool has_sluid = tenant->kind == TENANT_JOB && tenant->id[0] == 's';
        const unsigned i = has_sluid ? first_entry(c, tenant) : c->n_by_tenant;
        struct tenant known = *tenant;

        if (i < c->n_by_tenant && strcmp(c->by_tenant[i].id, tenant->id) == 0)
                (void)snprintf(known.id, sizeof(known.id), "%s",
                               c->list[c->by_tenant[i].class].jobs.list[0]);
        return known;
}

const struct class *classes_find(const struct classes *c, const struct class_subject *subject)
{
        const bool has_id = subject->tenant && subject->tenant->kind != TENANT_NONE;
        struct class_subject who = *subject;
        struct tenant known;
        unsigned best = c->n;

        if (has_id) {
                known = classes_tenant(c, subject->tenant);
                who.tenant = &known;
        }
        for (unsigned i = has_id ? first_entry(c, &known) : c->n_by_tenant;
             i < c->n_by_tenant && strcmp(c->by_tenant[i].id, known.id) == 0; i++)
                if (matches(&c->list[c->by_tenant[i].class], &who)) {
                        best = c->by_tenant[i].class;
                        break;
                }
        for (unsigned i = 0; i < c->n_others && c->others[i] < best; i++)
                if (matches(&c->list[c->others[i]], &who))
                        best = c->others[i];
        return best < c->n ? &c->list[best] : NULL;
}
