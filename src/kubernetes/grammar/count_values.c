/* count_values.c: owns the count of a text's values. Must never read the text as JSON. */
#include "kubernetes/grammar/count_values.h"

bool values_are_more_than(const char *text, size_t size, unsigned most)
{
        bool quoted = false;
        unsigned n = 0;

        for (size_t i = 0; i < size; i++) {
                if (quoted && text[i] == '\\')
                        i++;
                else if (text[i] == '"')
                        quoted = !quoted;
                else if (!quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{'))
                        n++;
        }
        return n > most;
}
