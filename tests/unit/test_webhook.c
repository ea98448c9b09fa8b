/* test_webhook.c: reviews in, answers out: what is read of a review, how a patch is written, and
 * quantities. The system test asks the program about whole pods. */
#include "unit.h"

#include <errno.h>

#include <gnutls/gnutls.h>
#include <jansson.h>

#include "base/macros.h"
#include "kubernetes/webhook/patch.h"
#include "kubernetes/grammar/quantity.h"
#include "kubernetes/webhook/review.h"

static const struct review_options options = {.from = "nvidia.com/gpu", .to = "sublet.dev/gpu"};

#define REVIEW(version, operation, pod)                                              \
        "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/" version   \
        "\",\"request\":{\"uid\":\"u-1\",\"operation\":\"" operation "\",\"kind\":{" \
        "\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"},\"object\":" pod "}}"
#define POD(metadata, containers) \
        "{\"metadata\":{" metadata "},\"spec\":{\"containers\":[" containers "]}}"
#define OPTED_IN "\"labels\":{\"sublet.dev/share\":\"true\"}"
#define ONE_GPU  "{\"name\":\"a\",\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"1\"}}}"

/* Returns the response of the answer; the caller drops it. */
static json_t *respond(const char *text)
{
        char error[REVIEW_ERROR_MAX] = "", *answer = NULL;
        json_t *json, *response;

        if (review_answer(text, strlen(text), &options, &answer, error) != 0)
                fail_msg("refused: %s", error);
        json = json_loads(answer, 0, NULL);
        assert_non_null(json);
        response = json_incref(json_object_get(json, "response"));
        assert_string_equal(json_string_value(json_object_get(response, "uid")), "u-1");
        assert_true(json_is_true(json_object_get(response, "allowed")));
        json_decref(json);
        free(answer);
        return response;
}

static void expect_patch(const char *text, const char *patch)
{
        json_t *response = respond(text);
        const char *coded = json_string_value(json_object_get(response, "patch"));
        gnutls_datum_t in, out;

        assert_non_null(coded);
        in = (gnutls_datum_t){(unsigned char *)coded, (unsigned)strlen(coded)};
        assert_int_equal(gnutls_base64_decode2(&in, &out), 0);
        assert_int_equal(out.size, strlen(patch));
        assert_memory_equal(out.data, patch, out.size);
        gnutls_free(out.data);
        json_decref(response);
}

static void expect_nothing(const char *text)
{
        json_t *response = respond(text);

        assert_int_equal(json_object_size(response), 2);
        json_decref(response);
}

static void a_resource_is_renamed_by_escaped_paths(void **state)
{
        static const char patch[] =
                "[{\"op\":\"remove\",\"path\":\"/spec/containers/0/resources/limits/"
                "nvidia.com~1gpu\"},{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/limits/"
                "sublet.dev~1gpu\",\"value\":\"1\"},{\"op\":\"add\",\"path\":\"/spec/tolerations\","
                "\"value\":[{\"key\":\"nvidia.com/gpu\",\"operator\":\"Exists\",\"effect\":"
                "\"NoSchedule\"}]}]";

        expect_patch(REVIEW("v1", "CREATE", POD(OPTED_IN, ONE_GPU)), patch);
        expect_patch(REVIEW("v1beta1", "CREATE", POD(OPTED_IN, ONE_GPU)), patch);
}

static void nothing_else_is_changed(void **state)
{
        expect_nothing(REVIEW("v1", "UPDATE", POD(OPTED_IN, ONE_GPU)));
        expect_nothing(REVIEW("v1", "CREATE", POD("", ONE_GPU)));
        expect_nothing(REVIEW("v1", "CREATE", POD(OPTED_IN, "")));
        expect_nothing(REVIEW("v1", "CREATE", POD(OPTED_IN, "null,7,[],{\"resources\":[]}")));
}

static void a_nul_in_a_text_is_no_reason_to_refuse(void **state)
{
        expect_nothing(REVIEW("v1", "CREATE", POD("\"labels\":{\"x\":\"\\u0000\"}", ONE_GPU)));
}

static void what_is_no_review_is_refused_with_a_sentence(void **state)
{
        static const char *const texts[] = {
                "",
                "null",
                "{",
                "{\"kind\":\"AdmissionReview\"}",
                "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\"}",
                ("{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\","
                 "\"request\":{\"uid\":\"\"}}"),
        };

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                char error[REVIEW_ERROR_MAX] = "", *answer = NULL;

                assert_int_equal(
                        review_answer(texts[i], strlen(texts[i]), &options, &answer, error),
                        -EINVAL);
                assert_null(answer);
                assert_true(strlen(error) > 10);
        }
}

/* Values are counted outside of texts only. */
static void too_many_values_are_refused_before_they_are_read(void **state)
{
        const size_t n = REVIEW_VALUES_MAX + 2;
        char error[REVIEW_ERROR_MAX], *answer = NULL, *text = malloc(n + 2000);
        int length;

        memset(text, '[', n);
        assert_int_equal(review_answer(text, n, &options, &answer, error), -EINVAL);
        assert_non_null(strstr(error, "more values"));

        length = sprintf(text, "%s", REVIEW("v1", "CREATE", "{\"x\":\"\\\""));
        length -= 2; /* the two closing braces of REVIEW come behind the long text */
        memset(text + length, ',', n);
        memcpy(text + length + n, "\"}}}", 5);
        assert_int_equal(review_answer(text, strlen(text), &options, &answer, error), 0);
        free(answer);
        free(text);
}

static void a_sentence_is_said_once_and_can_be_shown(void **state)
{
        struct patch p;

        assert_int_equal(patch_open(&p), 0);
        for (unsigned i = 0; i < 2; i++)
                patch_say(&p, "a\nb%s", "\x1b[31m");
        assert_int_equal(json_array_size(p.sentences), 1);
        assert_string_equal(json_string_value(json_array_get(p.sentences, 0)), "a?b?[31m");
        for (unsigned i = 0; i < 2 * PATCH_SENTENCES_MAX; i++)
                patch_say(&p, "%u %0300d", i, 7);
        assert_int_equal(json_array_size(p.sentences), PATCH_SENTENCES_MAX);
        assert_true(json_string_length(json_array_get(p.sentences, 1)) < PATCH_SENTENCE_MAX);
        assert_false(p.failed);
        patch_close(&p);
}

static void quantities_are_read_as_kubernetes_writes_them(void **state)
{
        static const struct {
                const char *text;
                uint64_t mib;
        } good[] = {
                {"1Mi", 1},
                {"8Gi", 8192},
                {"1.5Gi", 1536},
                {"+2Gi", 2048},
                {"1048576", 1},
                {"1048577", 2},
                {"4096M", 3907},
                {"1e9", 954},
                {"1E+9", 954},
                {"0.5Ti", 524288},
                {"1Ei", UINT64_C(1) << 40},
                {"1G", 954},
                {"1024Ki", 1},
                {"1.Gi", 1024},
                {".5Gi", 512},
        };
        static const char *const bad[] = {"",  "Gi",  "-1",  "8gi",  "8GiB", "1e",   "1e+",
                                          "0", "0Gi", "1 M", "1..5", "NaN",  "0x10", "1e9M"};
        static const char *const too_little[] = {"1",      "1e-3", "8192m",  "100n",
                                                 "1023Ki", "1M",   "1048575"};
        uint64_t mib = 77;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (quantity_mib(good[i].text, &mib) != 0 || mib != good[i].mib)
                        fail_msg("\"%s\" was read as %llu", good[i].text, (unsigned long long)mib);
        mib = 77;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (quantity_mib(bad[i], &mib) != -EINVAL || mib != 77)
                        fail_msg("\"%s\" was accepted", bad[i]);
        for (size_t i = 0; i < ARRAY_SIZE(too_little); i++)
                if (quantity_mib(too_little[i], &mib) != -EDOM || mib != 77)
                        fail_msg("\"%s\" was accepted", too_little[i]);
        assert_int_equal(quantity_bytes("16777216Ti", &mib), -ERANGE);
        assert_int_equal(quantity_bytes("16777215Ti", &mib), 0);
        assert_true(mib == UINT64_C(16777215) << 40);
        assert_int_equal(quantity_bytes("1.5", &mib), 0);
        assert_int_equal(mib, 2);
        assert_int_equal(quantity_bytes("999m", &mib), -EINVAL);
        assert_int_equal(quantity_mib("1e30", &mib), -ERANGE);
        assert_int_equal(quantity_mib("999999999999999999Ei", &mib), -ERANGE);
        assert_int_equal(quantity_mib("9999999999999999999", &mib), -ERANGE);
        assert_int_equal(quantity_mib("1e999999999", &mib), -ERANGE);
}

static void portions_lie_between_nothing_and_all(void **state)
{
        unsigned millionths = 0;

        assert_int_equal(quantity_portion("0.5", &millionths), 0);
        assert_int_equal(millionths, 500000);
        assert_int_equal(quantity_portion("2.5e-1", &millionths), 0);
        assert_int_equal(millionths, 250000);
        assert_int_equal(quantity_portion("1", &millionths), -ERANGE);
        assert_int_equal(quantity_portion("0", &millionths), -EINVAL);
        assert_int_equal(quantity_portion("-0.5", &millionths), -EINVAL);
        assert_int_equal(quantity_portion("50%", &millionths), -EINVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_resource_is_renamed_by_escaped_paths),
                cmocka_unit_test(nothing_else_is_changed),
                cmocka_unit_test(a_nul_in_a_text_is_no_reason_to_refuse),
                cmocka_unit_test(what_is_no_review_is_refused_with_a_sentence),
                cmocka_unit_test(too_many_values_are_refused_before_they_are_read),
                cmocka_unit_test(a_sentence_is_said_once_and_can_be_shown),
                cmocka_unit_test(quantities_are_read_as_kubernetes_writes_them),
                cmocka_unit_test(portions_lie_between_nothing_and_all),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
