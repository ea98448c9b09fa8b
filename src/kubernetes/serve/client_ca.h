/* client_ca.h: the authority whose clients may ask. It is read once. Only one thread may use this.
 */
#pragma once

#include <stdbool.h>

#include <gnutls/gnutls.h>

#define CLIENT_CA_ERROR_MAX 512

/* Reads the certificates of a file (PEM). *ret is a text, which client_ca_free() frees. 0, or
 * -EINVAL after a sentence. */
int client_ca_read(const char *path, char **ret, char error[static CLIENT_CA_ERROR_MAX]);
void client_ca_free(char *pem); /* NULL is a no-op */

/* True if the client of this session has shown a certificate for clients that is valid now. An
 * authority among the session's credentials must have signed it. */
bool client_ca_vouches(gnutls_session_t session);
