/* certificate.h: the certificate that a program shows, read again when its files change.
 *
 * A connection that started under one certificate may still need it when the next one is there, so
 * connections hold a reference. There is one certificate in a process, because the function that
 * GnuTLS calls gets no argument of ours. Only one thread may use this. */
#pragma once

#include <gnutls/abstract.h>

#define CERTIFICATE_ERROR_MAX 512

struct certificate;

/* The strings of the paths must stay valid. 0, or -EINVAL after a sentence about what cannot be
 * used. */
int certificate_open(const char *certificate_path, const char *key_path,
                     char error[static CERTIFICATE_ERROR_MAX]);
void certificate_close(void);

/* Looks at the files, at most once a second, and reads them if they changed. What cannot be used is
 * told in the log once, and the last good certificate stays. */
void certificate_refresh(void);

/* Keeps the current certificate and all later ones until the release. NULL: none is open. */
struct certificate *certificate_hold(void);
void certificate_release(struct certificate *c);

/* Shows the certificate: a function for MHD_OPTION_HTTPS_CERT_CALLBACK. */
int certificate_retrieve(gnutls_session_t session, const gnutls_datum_t *ca_names, int n_ca_names,
                         const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
                         gnutls_pcert_st **ret_chain, unsigned *ret_length,
                         gnutls_privkey_t *ret_key);
