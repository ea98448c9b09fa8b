/* review.c: owns the envelope: what is read of a review, and how it is answered. Must never refuse
 * a pod, and never change anything but a pod that is being created. */
#include "kubernetes/webhook/review.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/gnutls.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "base/json_text.h"
#include "base/text.h"
#include "kubernetes/grammar/count_values.h"
#include "kubernetes/webhook/patch.h"
#include "kubernetes/webhook/webhook_pod.h"

static int refuse(char error[static REVIEW_ERROR_MAX], const char *sentence)
{
        (void)snprintf(error, REVIEW_ERROR_MAX, "%s", sentence);
        return -EINVAL;
}

static int read_review(const char *text, size_t size, json_t **ret,
                       char error[static REVIEW_ERROR_MAX])
{
        json_auto_t *review = NULL;
        const json_t *request;
        json_error_t where;
        char detail[sizeof(where.text)];

        if (values_are_more_than(text, size, REVIEW_VALUES_MAX))
                return refuse(error, "the review has more values than a pod can have");
        /* A NUL in a text of the pod is no business of ours. */
        review = json_loadb(text, size, JSON_ALLOW_NUL, &where);
        if (!review && json_error_code(&where) == json_error_out_of_memory)
                return -ENOMEM;
        if (!review) {
                (void)snprintf(error, REVIEW_ERROR_MAX, "the review is no JSON: byte %d: %s",
                               where.position, text_copy(detail, sizeof(detail), where.text));
                return -EINVAL;
        }
        if (strcmp(text_at(review, "kind"), "AdmissionReview") != 0)
                return refuse(error, "the JSON is no AdmissionReview: its kind says so");
        if (strcmp(text_at(review, "apiVersion"), "admission.k8s.io/v1") != 0 &&
            strcmp(text_at(review, "apiVersion"), "admission.k8s.io/v1beta1") != 0)
                return refuse(error, "the review's apiVersion is neither admission.k8s.io/v1 nor "
                                     "admission.k8s.io/v1beta1");
        request = json_object_get(review, "request");
        if (!json_is_object(request))
                return refuse(error, "the review has no request");
        if (!*text_at(request, "uid"))
                return refuse(error, "the review's request has no uid");
        *ret = TAKE_PTR(review);
        return 0;
}

static bool is_new_pod(const json_t *request)
{
        const json_t *kind = json_object_get(request, "kind");

        return strcmp(text_at(request, "operation"), "CREATE") == 0 &&
               !*text_at(request, "subResource") && !*text_at(kind, "group") &&
               strcmp(text_at(kind, "version"), "v1") == 0 &&
               strcmp(text_at(kind, "kind"), "Pod") == 0;
}

/* Adds the patch to the answer, as base64 of its text. 0 or -ENOMEM. */
static int add_patch(json_t *response, const json_t *operations)
{
        _cleanup_free_ char *text = json_dumps(operations, JSON_COMPACT);
        gnutls_datum_t plain, coded = {0};
        int r = -ENOMEM;

        if (!text)
                return -ENOMEM;
        plain = (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
        if (gnutls_base64_encode2(&plain, &coded) < 0)
                return -ENOMEM;
        if (json_object_set_new(response, "patchType", json_string("JSONPatch")) == 0 &&
            json_object_set_new(response, "patch", json_stringn((char *)coded.data, coded.size)) ==
                    0)
                r = 0;
        gnutls_free(coded.data);
        return r;
}

static int write_answer(const json_t *review, const struct patch *p, char **ret)
{
        json_t *uid = json_object_get(json_object_get(review, "request"), "uid");
        json_t *response = json_pack("{s:O, s:b}", "uid", uid, "allowed", 1);
        json_auto_t *answer =
                json_pack("{s:s, s:s, s:o}", "apiVersion", text_at(review, "apiVersion"), "kind",
                          "AdmissionReview", "response", response);

        if (!answer || p->failed)
                return -ENOMEM;
        if (json_array_size(p->operations) && add_patch(response, p->operations) < 0)
                return -ENOMEM;
        if (json_array_size(p->sentences) &&
            json_object_set(response, "warnings", p->sentences) < 0)
                return -ENOMEM;
        *ret = json_dumps(answer, JSON_COMPACT);
        return *ret ? 0 : -ENOMEM;
}

int review_answer(const char *text, size_t size, const struct review_options *options,
                  char **ret_answer, char error[static REVIEW_ERROR_MAX])
{
        json_auto_t *review = NULL;
        const json_t *request;
        struct patch p;
        int r = read_review(text, size, &review, error);

        if (r < 0)
                return r;
        r = patch_open(&p);
        if (r < 0)
                return r;
        request = json_object_get(review, "request");
        if (is_new_pod(request))
                pod_share(json_object_get(request, "object"), options, &p);
        r = write_answer(review, &p, ret_answer);
        patch_close(&p);
        return r;
}
