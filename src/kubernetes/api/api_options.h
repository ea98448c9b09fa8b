/* api_options.h: the options of a command line that say where the API server is and who asks it. */
#pragma once

#include <stddef.h>

#include "base/options.h"
#include "kubernetes/api/web.h"

/* Rows of an options_table. server: where the struct web_server is in the program's options.
 * asked_for: "pods and nodes". */
/* clang-format off */
#define API_OPTIONS(server, asked_for)                                                             \
        {"api-server", "URL",                                                                      \
         "whom to ask for " asked_for "\n"                                                         \
         "(https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT)",                            \
         api_set_url, (server) + offsetof(struct web_server, url), NULL},                          \
        {"token-file", "FILE", "the service account's token",                                      \
         options_set_path, (server) + offsetof(struct web_server, token_file),                     \
         WEB_SERVICE_ACCOUNT "token"},                                                             \
        {"ca-file", "FILE", "the authority that signed the API server's certificate",              \
         options_set_path, (server) + offsetof(struct web_server, ca_file),                        \
         WEB_SERVICE_ACCOUNT "ca.crt"}
/* clang-format on */

/* Lines of the help, under "Variables of the environment:". */
#define API_OPTIONS_VARIABLES                                                     \
        "  KUBERNETES_SERVICE_HOST  the API server; Kubernetes sets it in pods\n" \
        "  KUBERNETES_SERVICE_PORT  its port\n"

int api_set_url(const struct option_row *row, void *field, const char *value);

/* Call it after options_parse(). Without --api-server, the server is the one that Kubernetes names
 * in the environment, if any. 0, or OPTIONS_EXIT_USAGE after a message. */
int api_options_complete(const struct options_table *t, struct web_server *server);
