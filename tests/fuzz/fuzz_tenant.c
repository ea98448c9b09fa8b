/* fuzz_tenant.c: any two texts as what /proc says about the cgroups of a process and of the daemon,
 * with a zero between them. A pod is found only below the kubelet's names, and a job below Slurm's.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/tenant.h"

static void check_tenant(const char *theirs, const char *ours)
{
        struct tenant t, again;
        char id[TENANT_ID_MAX + 1];

        tenant_of_cgroups(theirs, ours, &t);
        FUZZ_CHECK(memchr(t.id, '\0', sizeof(t.id)) != NULL);
        if (t.kind == TENANT_POD) {
                FUZZ_CHECK(tenant_read_pod(t.id, strlen(t.id), id) && strcmp(id, t.id) == 0);
                FUZZ_CHECK(strstr(theirs, "kubepods") || strstr(theirs, ".."));
        } else if (t.kind == TENANT_JOB) {
                const bool number = tenant_read_job(t.id, strlen(t.id), id);

                FUZZ_CHECK(number || tenant_read_sluid(t.id, strlen(t.id), id));
                FUZZ_CHECK(strcmp(id, t.id) == 0 && strstr(theirs, "slurm"));
                FUZZ_CHECK(strstr(theirs, number ? "job_" : "slurmstepd.scope"));
        } else {
                FUZZ_CHECK(t.id[0] == '\0' && tenant_number(&t) == 0);
        }
        tenant_of_cgroups(theirs, "", &again);
        FUZZ_CHECK(again.kind == TENANT_NONE || tenant_same(&t, &again)); /* the top counts first */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_free_ char *text = malloc(size + 2);
        char path[64];
        const char *theirs = text, *ours;
        int r;

        FUZZ_CHECK(text != NULL);
        memcpy(text, data, size);
        text[size] = text[size + 1] = '\0';
        ours = theirs + strlen(theirs) + 1;
        check_tenant(theirs, ours);
        r = tenant_path(theirs, path, sizeof(path));
        FUZZ_CHECK(r == -ENOENT || r == -ENAMETOOLONG || (r == 0 && strlen(path) < sizeof(path)));
        return 0;
}
