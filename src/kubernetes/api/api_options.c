/* api_options.c: owns how the command line and the environment name the API server. */
#include "kubernetes/api/api_options.h"

int api_set_url(const struct option_row *row, void *field, const char *value)
{
        return web_copy_url(value, field);
}

int api_options_complete(const struct options_table *t, struct web_server *server)
{
        server->program = t->program;
        if (!server->url[0] && web_url_of_cluster(server->url) < 0)
                return options_fail(t, "KUBERNETES_SERVICE_HOST names no host");
        return 0;
}
