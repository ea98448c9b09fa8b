/* address.c: owns the text form of addresses. Must never accept one that other machines reach. */
#include "daemon/setup/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "base/units.h"

static int parse_path(const char *text, struct sockaddr_un *ret, socklen_t *ret_size)
{
        const size_t n = strlen(text);

        if (n >= sizeof(ret->sun_path))
                return -EINVAL;
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(ret->sun_path, text, n);
        *ret_size = sizeof(*ret);
        return 0;
}

static int parse_host(const char *host, in_port_t port, struct sockaddr_storage *ret,
                      socklen_t *ret_size)
{
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = port};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = port};

        if (inet_pton(AF_INET, host, &four.sin_addr) == 1) {
                memcpy(ret, &four, sizeof(four));
                *ret_size = sizeof(four);
                return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET ? 0 : -EADDRNOTAVAIL;
        }
        if (inet_pton(AF_INET6, host, &six.sin6_addr) == 1) {
                memcpy(ret, &six, sizeof(six));
                *ret_size = sizeof(six);
                return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) ? 0 : -EADDRNOTAVAIL;
        }
        return -EINVAL;
}

int address_parse(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size)
{
        const char *colon = strrchr(text, ':');
        char host[INET6_ADDRSTRLEN] = "";
        uint64_t port;
        size_t n;

        memset(ret, 0, sizeof(*ret));
        if (text[0] == '/')
                return parse_path(text, (struct sockaddr_un *)ret, ret_size);
        if (!colon || units_parse_count(colon + 1, &port) < 0 || port < 1 || port > UINT16_MAX)
                return -EINVAL;
        n = (size_t)(colon - text);
        if (n > 2 && text[0] == '[' && text[n - 1] == ']')
                text++, n -= 2;
        else if (memchr(text, ':', n))
                return -EINVAL; /* the port of an IPv6 address stands behind brackets */
        if (n >= sizeof(host))
                return -EINVAL;
        memcpy(host, text, n);
        return parse_host(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                          htons((in_port_t)port), ret, ret_size);
}
