/* order_settings.c: owns the form in which settings are shown and changed by orders. Must never
 * give a program what entitlement.c does not allow. */
#include "daemon/history/history.h"
#include "daemon/orders/order_settings.h"

#include <string.h>

#include "base/log.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/state/answer.h"
#include "daemon/orders/order_reload.h"
#include "daemon/state/client.h"

static struct client *named(struct server *s, const json_t *order, const struct peer *peer,
                            json_t **ret_answer)
{
        return answer_program(s, order, peer, "the number of a process, \"pid\", is an integer",
                              "see and set what it gets", ret_answer);
}

/* Returns the one setting of the order; NULL with an answer: there is not exactly one. */
static const char *one_setting(json_t *order, const char **ret_value, json_t **ret_answer)
{
        const char *key, *found = NULL;
        json_t *value;

        *ret_value = NULL;
        json_object_foreach (order, key, value) {
                if (strcmp(key, "order") == 0 || strcmp(key, "pid") == 0)
                        continue;
                if (found) {
                        *ret_answer = answer_error("one setting at a time");
                        return NULL;
                }
                found = key;
                *ret_value = json_string_value(value);
        }
        if (!found)
                *ret_answer = answer_error("set what? An order has one setting");
        else if (!*ret_value)
                *ret_answer = answer_error("the value of a setting is a text");
        return *ret_value ? found : NULL;
}

/* Adds the settings of a table. files: the values without what orders changed; NULL: no files. */
static json_t *list(const struct value_key *keys, size_t n, const void *values, const void *files)
{
        char text[VALUE_TEXT_MAX], other[VALUE_TEXT_MAX];
        json_t *all = json_array();

        for (size_t i = 0; i < n; i++) {
                json_t *one = json_pack("{s:s, s:s, s:s}", "key", keys[i].name, "value",
                                        values_text(&keys[i], values, text), "help", keys[i].help);

                if (files && strcmp(values_text(&keys[i], files, other), text) != 0)
                        (void)json_object_set_new(one, "files", json_string(other));
                (void)json_array_append_new(all, one);
        }
        return json_pack("{s:o}", "settings", all);
}

json_t *settings_get(struct server *s, json_t *order, const struct peer *peer)
{
        struct class_settings own;
        const struct value_key *keys;
        json_t *answer = NULL;
        struct client *c;
        size_t n;

        if (!json_object_get(order, "pid")) {
                keys = config_keys(&n);
                return list(keys, n, s->config, &s->files);
        }
        c = named(s, order, peer, &answer);
        if (!c)
                return answer;
        entitlement_own(c, &own);
        keys = class_own_keys(&n);
        return list(keys, n, &own, NULL);
}

json_t *settings_set(struct server *s, json_t *order, const struct peer *peer)
{
        char error[CONFIG_ERROR_MAX], text[VALUE_TEXT_MAX], who[HISTORY_WHO_MAX];
        const struct value_key *keys;
        const char *key, *value;
        json_t *answer = NULL;
        size_t n;

        key = one_setting(order, &value, &answer);
        if (!key)
                return answer;
        if (reload_set(s, key, value, error) < 0)
                return answer_error("%s", error);
        keys = config_keys(&n);
        (void)values_text(values_find(keys, n, key), s->config, text);
        log_info("%s = %s from now on, %s", key, text,
                 history_order(s, NULL, HISTORY_SET, peer, who));
        return json_pack("{s:s}", "value", text);
}

json_t *settings_set_program(struct server *s, json_t *order, const struct peer *peer)
{
        char error[CONFIG_ERROR_MAX], wanted[VALUE_TEXT_MAX], text[VALUE_TEXT_MAX],
                who[HISTORY_WHO_MAX];
        const struct value_key *keys, *k;
        struct class_settings own;
        const char *key, *value;
        json_t *answer = NULL;
        struct client *c;
        size_t n;

        c = named(s, order, peer, &answer);
        key = c ? one_setting(order, &value, &answer) : NULL;
        if (!key)
                return answer;
        keys = class_own_keys(&n);
        entitlement_own(c, &own);
        if (values_set(keys, n, &own, key, value, false, error) < 0)
                return answer_error("%s", error);
        if (own.minimum_permille > own.maximum_permille)
                return answer_error("minimum is above maximum: change the other one first");
        k = values_find(keys, n, key);
        (void)values_text(k, &own, wanted);
        if (entitlement_order(c, &own, peer) < 0)
                return answer_error("the daemon's owner has set what process %d gets, so its user "
                                    "cannot change it: ask the owner",
                                    (int)c->peer.pid);
        entitlement_own(c, &own);
        (void)values_text(k, &own, text);
        log_info("process %d (%s) has %s = %s from now on, %s", (int)c->peer.pid, c->name, key,
                 text, history_order(s, c, HISTORY_SET, peer, who));
        return json_pack("{s:s, s:b}", "value", text, "lowered", strcmp(wanted, text) != 0);
}
