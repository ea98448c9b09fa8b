/* fuzz_review.c: any bytes as a review lead to an error with a sentence, or to an answer that
 * allows the pod and whose patch has only the operations and places that it may have. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include <gnutls/gnutls.h>
#include <jansson.h>

#include "kubernetes/webhook/patch.h"
#include "kubernetes/webhook/review.h"

static void check_operation(const json_t *operation)
{
        const char *op = json_string_value(json_object_get(operation, "op"));
        const char *path = json_string_value(json_object_get(operation, "path"));

        FUZZ_CHECK(op && path);
        FUZZ_CHECK(strcmp(op, "add") == 0 || strcmp(op, "remove") == 0);
        FUZZ_CHECK((strcmp(op, "add") == 0) == (json_object_get(operation, "value") != NULL));
        FUZZ_CHECK(strncmp(path, "/spec/containers/", 17) == 0 ||
                   strncmp(path, "/spec/initContainers/", 21) == 0 ||
                   strncmp(path, "/metadata/annotations", 21) == 0);
}

static void check_patch(const json_t *response)
{
        const char *coded = json_string_value(json_object_get(response, "patch"));
        gnutls_datum_t in, out;
        json_t *patch, *operation;
        size_t i;

        FUZZ_CHECK(!coded == !json_object_get(response, "patchType"));
        if (!coded)
                return;
        in = (gnutls_datum_t){(unsigned char *)coded, (unsigned)strlen(coded)};
        FUZZ_CHECK(gnutls_base64_decode2(&in, &out) == 0);
        patch = json_loadb((char *)out.data, out.size, JSON_ALLOW_NUL, NULL);
        FUZZ_CHECK(json_array_size(patch) > 0);
        json_array_foreach (patch, i, operation)
                check_operation(operation);
        json_decref(patch);
        gnutls_free(out.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const struct review_options options = {
                .from = "nvidia.com/gpu", .to = "sublet.dev/gpu", .all = size % 2};
        char error[REVIEW_ERROR_MAX] = "", *text = NULL;
        json_t *answer, *response, *warning;
        size_t i;
        int r = review_answer((const char *)data, size, &options, &text, error);

        if (r < 0) {
                FUZZ_CHECK(r == -EINVAL && memchr(error, '\0', sizeof(error)) && error[0]);
                return 0;
        }
        answer = json_loads(text, JSON_ALLOW_NUL, NULL);
        response = json_object_get(answer, "response");
        FUZZ_CHECK(json_is_true(json_object_get(response, "allowed")));
        FUZZ_CHECK(json_is_string(json_object_get(response, "uid")));
        json_array_foreach (json_object_get(response, "warnings"), i, warning)
                FUZZ_CHECK(json_string_length(warning) < PATCH_SENTENCE_MAX);
        check_patch(response);
        json_decref(answer);
        free(text);
        return 0;
}
