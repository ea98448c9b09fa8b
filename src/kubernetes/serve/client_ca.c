/* client_ca.c: owns the check of a client's certificate. Must never accept a certificate that is
 * not a client certificate. */
#include "kubernetes/serve/client_ca.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <gnutls/x509.h>

#include "base/macros.h"

#define CERTIFICATES_MAX 64u

int client_ca_read(const char *path, char **ret, char error[static CLIENT_CA_ERROR_MAX])
{
        gnutls_x509_crt_t list[CERTIFICATES_MAX];
        gnutls_datum_t text = {0};
        unsigned n = CERTIFICATES_MAX;
        int r = gnutls_load_file(path, &text); /* gnutls_load_file() adds a NUL */

        if (r < 0) {
                (void)snprintf(error, CLIENT_CA_ERROR_MAX, "cannot read %.300s", path);
                return -EINVAL;
        }
        r = gnutls_x509_crt_list_import(list, &n, &text, GNUTLS_X509_FMT_PEM,
                                        GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
        for (unsigned i = 0; r >= 0 && i < n; i++)
                gnutls_x509_crt_deinit(list[i]);
        if (r <= 0 || strlen((char *)text.data) != text.size) {
                (void)snprintf(error, CLIENT_CA_ERROR_MAX,
                               "%.300s has no certificate of an authority in it, or too many",
                               path);
                gnutls_free(text.data);
                return -EINVAL;
        }
        *ret = (char *)text.data;
        return 0;
}

void client_ca_free(char *pem)
{
        gnutls_free(pem);
}

bool client_ca_vouches(gnutls_session_t session)
{
        gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                         .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
        unsigned wrong = 0;

        return gnutls_certificate_verify_peers(session, &purpose, 1, &wrong) == 0 && wrong == 0;
}
