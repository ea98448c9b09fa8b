/* json_text.h: reads texts out of JSON. Pure. */
#pragma once

#include <jansson.h>

/* Returns the text of this key; "": there is none. Lives as long as the object. */
static inline const char *text_at(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));

        return text ? text : "";
}
