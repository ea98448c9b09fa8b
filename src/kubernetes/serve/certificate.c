/* certificate.c: owns the certificate in use and those before it that connections still hold. Must
 * never replace a certificate by one that does not fit its key: the two files change one after the
 * other. */
#include "kubernetes/serve/certificate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"

#define CHAIN_MAX      16u
#define LOOK_EACH_NS   NSEC_PER_SEC
#define FILE_BYTES_MAX (1 << 20)

struct certificate {
        unsigned holders;
        struct certificate *next; /* the next newer one, which is held: a connection that began with
                                     this one may use it */
        gnutls_pcert_st chain[CHAIN_MAX];
        unsigned length;
        gnutls_privkey_t key;
};

/* What tells one state of a file from the next. */
struct stamp {
        struct timespec changed;
        ino_t inode;
        off_t size;
};

enum { CERTIFICATE, KEY, FILES };

static struct {
        const char *paths[FILES];
        struct stamp stamps[FILES];
        struct certificate *now;
        uint64_t looked_ns;
        char told[CERTIFICATE_ERROR_MAX]; /* the trouble that was logged last */
} shown;

/* ---- one certificate ---- */

struct certificate *certificate_hold(void)
{
        if (shown.now)
                shown.now->holders++;
        return shown.now;
}

void certificate_release(struct certificate *c)
{
        while (c && --c->holders == 0) {
                struct certificate *next = c->next;

                for (unsigned i = 0; i < c->length; i++)
                        gnutls_pcert_deinit(&c->chain[i]);
                gnutls_privkey_deinit(c->key);
                free(c);
                c = next;
        }
}

/* Replaces the certificate in use. */
static void show(struct certificate *c)
{
        struct certificate *before = shown.now;

        shown.now = c;
        if (!before)
                return;
        before->next = certificate_hold();
        certificate_release(before);
}

static void cleanup_datum(gnutls_datum_t *d)
{
        if (d->data)
                gnutls_memset(d->data, 0, d->size); /* the data may be a key */
        gnutls_free(d->data);
}

static void cleanup_credentials(gnutls_certificate_credentials_t *c)
{
        if (*c)
                gnutls_certificate_free_credentials(*c);
}

static int load(const char *path, gnutls_datum_t *ret, char error[static CERTIFICATE_ERROR_MAX])
{
        struct stat st;

        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX ||
            gnutls_load_file(path, ret) < 0) {
                (void)snprintf(error, CERTIFICATE_ERROR_MAX, "cannot read %s", path);
                return -EINVAL;
        }
        return 0;
}

static int refuse(int code, char error[static CERTIFICATE_ERROR_MAX])
{
        const char *reason = gnutls_strerror(code);

        (void)snprintf(error, CERTIFICATE_ERROR_MAX,
                       "cannot use the certificate %.150s with the key %.150s: %.*s",
                       shown.paths[CERTIFICATE], shown.paths[KEY], (int)strcspn(reason, "."),
                       reason);
        return -EINVAL;
}

/* GnuTLS compares certificate and key only as it puts them into credentials. */
static int check(const gnutls_datum_t *certificate, const gnutls_datum_t *key)
{
        _cleanup_(cleanup_credentials) gnutls_certificate_credentials_t credentials = NULL;
        int r = gnutls_certificate_allocate_credentials(&credentials);

        if (r < 0)
                return r;
        return gnutls_certificate_set_x509_key_mem2(credentials, certificate, key,
                                                    GNUTLS_X509_FMT_PEM, NULL, 0);
}

static int read_both(struct certificate **ret, char error[static CERTIFICATE_ERROR_MAX])
{
        _cleanup_(cleanup_datum) gnutls_datum_t certificate = {0}, key = {0};
        struct certificate *c;
        int r;

        if (load(shown.paths[CERTIFICATE], &certificate, error) < 0 ||
            load(shown.paths[KEY], &key, error) < 0)
                return -EINVAL;
        r = check(&certificate, &key);
        if (r < 0)
                return refuse(r, error);
        c = calloc(1, sizeof(*c));
        if (!c)
                return refuse(GNUTLS_E_MEMORY_ERROR, error);
        c->holders = 1;
        r = gnutls_privkey_init(&c->key);
        if (r < 0) {
                free(c);
                return refuse(r, error);
        }
        c->length = CHAIN_MAX;
        r = gnutls_pcert_list_import_x509_raw(c->chain, &c->length, &certificate,
                                              GNUTLS_X509_FMT_PEM,
                                              GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
        if (r < 0)
                c->length = 0;
        else
                r = gnutls_privkey_import_x509_raw(c->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
        if (r < 0) {
                certificate_release(c);
                return refuse(r, error);
        }
        *ret = c;
        return 0;
}

/* ---- the files ---- */

/* Kubelet changes a link on the way to the files, so the files themselves are looked at. */
static void look(struct stamp ret[static FILES])
{
        struct stat st;

        memset(ret, 0, FILES * sizeof(*ret));
        for (unsigned i = 0; i < FILES; i++)
                if (stat(shown.paths[i], &st) == 0)
                        ret[i] = (struct stamp){st.st_mtim, st.st_ino, st.st_size};
}

static bool is_same(const struct stamp *a, const struct stamp *b)
{
        return a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec &&
               a->inode == b->inode && a->size == b->size;
}

/* The stamps are older than what is read, so that a later change is always noticed. */
static int read_again(char error[static CERTIFICATE_ERROR_MAX])
{
        struct stamp stamps[FILES];
        struct certificate *c = NULL;
        int r;

        look(stamps);
        r = read_both(&c, error);
        if (r < 0)
                return r;
        memcpy(shown.stamps, stamps, sizeof(stamps));
        show(c);
        return 0;
}

int certificate_open(const char *certificate_path, const char *key_path,
                     char error[static CERTIFICATE_ERROR_MAX])
{
        shown.paths[CERTIFICATE] = certificate_path;
        shown.paths[KEY] = key_path;
        return read_again(error);
}

void certificate_close(void)
{
        certificate_release(shown.now);
        shown.now = NULL;
}

void certificate_refresh(void)
{
        char error[CERTIFICATE_ERROR_MAX];
        struct stamp stamps[FILES];

        if (!shown.now || clock_now_ns() < shown.looked_ns + LOOK_EACH_NS)
                return;
        shown.looked_ns = clock_now_ns();
        look(stamps);
        if (is_same(&stamps[CERTIFICATE], &shown.stamps[CERTIFICATE]) &&
            is_same(&stamps[KEY], &shown.stamps[KEY]))
                return;
        if (read_again(error) == 0) {
                shown.told[0] = '\0';
                log_notice("shows the new certificate in %s", shown.paths[CERTIFICATE]);
        } else if (strcmp(error, shown.told) != 0) {
                log_warning("%s; the last good one stays", error);
                memcpy(shown.told, error, sizeof(error));
        }
}

int certificate_retrieve(gnutls_session_t session, const gnutls_datum_t *ca_names, int n_ca_names,
                         const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
                         gnutls_pcert_st **ret_chain, unsigned *ret_length,
                         gnutls_privkey_t *ret_key)
{
        *ret_chain = shown.now->chain;
        *ret_length = shown.now->length;
        *ret_key = shown.now->key;
        return 0;
}
