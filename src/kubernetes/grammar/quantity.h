/* quantity.h: quantities as Kubernetes writes them: "8Gi", "512Mi", "4096M", "1.5G", "1e9".
 *
 * Not base/units.h: there "8g" is 8 GiB and "8Gi" is nothing; here "8G" is 8 000 000 000. Pure. */
#pragma once

#include <stdint.h>

/* Reads a quantity of bytes, rounded up. 0; -EINVAL: malformed, negative, or less than a byte, such
 * as "128m", which is mistaken for MiB; -ERANGE: too large. */
int quantity_bytes(const char *text, uint64_t *ret_bytes);
/* Reads a quantity as quantity_bytes() does, but also takes a B at the end ("20GiB"), as in other
 * settings. -EDOM: less than 1 MiB, which nobody means: in "8192m" the m is a thousandth. */
int quantity_size(const char *text, uint64_t *ret_bytes);
/* Reads a quantity of bytes as MiB, rounded up. 0; -EINVAL: malformed, negative or nothing; -EDOM:
 * less than 1 MiB, such as "8192m", which is 8.192 bytes; -ERANGE: too large. */
int quantity_mib(const char *text, uint64_t *ret_mib);
/* Reads a number between 0 and 1, both excluded, in millionths, rounded down. 0, -EINVAL or
 * -ERANGE. */
int quantity_portion(const char *text, unsigned *ret_millionths);
/* Reads a whole number of decimal digits, 1 or more. 0, -EINVAL or -ERANGE. */
int quantity_count(const char *text, uint64_t *ret_count);
