/* test_peer.c: memory of a card is mapped for every card that reaches it and on which the process
 * has a context. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/share/ipc.h"
#include "preload/share/peer_access.h"
#include "preload/stream/quiesce.h"

#define CARDS 3u

static bool contexts[CARDS];       /* the process has a context on this card */
static bool reaches[CARDS][CARDS]; /* [from][to]: a card can access another */
static struct block blocks[CARDS][4];
static struct extent extents[CARDS][4];
static unsigned allowed; /* number of calls of extent_allow() */
static unsigned imports; /* bit n: imports of card n were updated */
static struct context context;

/* ---- fakes of other modules ---- */

struct context *quiesce_context_of(const struct gpu *g)
{
        return contexts[g - core.gpus] ? &context : NULL;
}

struct extent *heap_walk(struct heap *h, struct heap_cursor *c)
{
        unsigned card = 0;

        while (h != &core.gpus[card].heap)
                card++;
        return c->extent < 4 ? &extents[card][c->extent++] : NULL;
}

void extent_allow(struct extent *e, uint32_t peers)
{
        assert_true(e->busy);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        e->peers = peers;
        allowed++;
}

void ipc_import_reach(const struct gpu *g)
{
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        imports |= 1U << g->index;
}

static CUresult fake_can(int *ret, CUdevice from, CUdevice to)
{
        assert_int_not_equal(from, to);
        *ret = reaches[from][to];
        return from == 2 && to == 1 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

/* Three cards that reach each other, with contexts on the first two. */
static int begin(void **state)
{
        static const enum extent_state states[] = {EXTENT_RESIDENT, EXTENT_MAPPED, EXTENT_EVICTED,
                                                   EXTENT_RESIDENT};

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = CARDS};
        real = (struct real_driver){.cuDeviceCanAccessPeer = fake_can,
                                    .cuThreadExchangeStreamCaptureMode = fake_relax};
        meanwhile = NULL;
        allowed = imports = 0;
        for (unsigned i = 0; i < CARDS; i++) {
                core.gpus[i].index = i;
                core.gpus[i].known = core.gpus[i].managed = true;
                contexts[i] = i < 2;
                for (unsigned k = 0; k < CARDS; k++)
                        reaches[i][k] = true;
                for (unsigned k = 0; k < 4; k++) {
                        blocks[i][k] = (struct block){.kind = k == 3 ? BLOCK_HANDLE : BLOCK_LARGE};
                        extents[i][k] = (struct extent){.block = &blocks[i][k], .state = states[k]};
                }
        }
        return 0;
}

static int end(void **state)
{
        for (unsigned i = 0; i < CARDS; i++)
                for (unsigned k = 0; k < 4; k++)
                        assert_false(extents[i][k].busy);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return 0;
}

static void assert_peers(unsigned card, uint32_t peers)
{
        assert_int_equal(core.gpus[card].peers, peers);
        assert_int_equal(extents[card][0].peers, peers);
        assert_int_equal(extents[card][1].peers, peers);
        /* Evicted extents get their access when restored; access to handles is up to the
         * program. */
        assert_int_equal(extents[card][2].peers, 0);
        assert_int_equal(extents[card][3].peers, 0);
}

static void memory_of_a_card_is_mapped_for_other_cards_with_a_context(void **state)
{
        peer_update();
        assert_peers(0, 2);
        assert_peers(1, 1);
        assert_peers(2, 3); /* the card with the memory needs no context */
        assert_int_equal(imports, 7);
        contexts[2] = true;
        reaches[2][0] = false;
        peer_update();
        assert_peers(0, 2);
        assert_peers(1, 1); /* the driver's answer for card 2 to card 1 is an error */
}

static void a_card_that_gets_a_context_later_is_added(void **state)
{
        peer_update();
        contexts[2] = true;
        imports = 0;
        peer_update();
        assert_peers(0, 6);
        assert_int_equal(imports, 1);
        contexts[1] = false; /* mappings stay when a context ends */
        peer_update();
        assert_peers(0, 6);
}

static void correct_mappings_are_not_touched(void **state)
{
        peer_update();
        assert_int_equal(allowed, 6);
        imports = 0;
        peer_update();
        assert_int_equal(allowed, 6);
        assert_int_equal(imports, 0);
}

static void unknown_and_unmanaged_cards_are_left_out(void **state)
{
        core.gpus[1].known = false;
        core.gpus[2].managed = false;
        peer_update();
        assert_peers(0, 0);
        assert_peers(1, 1);
        assert_peers(2, 0);
}

static void a_single_card_causes_no_driver_calls(void **state)
{
        real.cuDeviceCanAccessPeer = NULL;
        core.gpu_count = 1;
        peer_update();
        core.gpu_count = 0;
        peer_update();
        assert_int_equal(allowed, 0);
}

static void managed_memory_needs_no_mapping(void **state)
{
        extents[0][0].managed = true;
        peer_update();
        assert_int_equal(extents[0][0].peers, 0);
        assert_int_equal(extents[0][1].peers, 2);
}

static unsigned waits;

static void come_to_rest(const struct core_wait *w)
{
        waits++;
        lock_acquire(&core_lock);
        assert_int_equal(extents[0][0].peers, 0);
        assert_int_equal(extents[0][1].peers, 2); /* extents that are not busy come first */
        extents[0][0].busy = false;
        bell_ring(&core.changed);
        lock_release(&core_lock);
}

static void an_update_waits_for_busy_extents(void **state)
{
        uint32_t heard = bell_listen(&core.changed);

        extents[0][0].busy = true;
        waits = 0;
        meanwhile = come_to_rest;
        peer_update();
        assert_int_equal(waits, 1);
        assert_peers(0, 2);
        /* Threads that wait for the extents are woken. */
        assert_true(bell_listen(&core.changed) - heard > 1);
}

static void fail_meanwhile(const struct core_wait *w)
{
        atomic_store(&core.bystander, true);
        extents[0][0].busy = false;
}

static void a_bystander_does_not_wait_for_busy_extents(void **state)
{
        extents[0][0].busy = true;
        meanwhile = fail_meanwhile;
        peer_update();
        assert_int_equal(extents[0][0].peers, 0);
}

#define PEER_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                PEER_TEST(memory_of_a_card_is_mapped_for_other_cards_with_a_context),
                PEER_TEST(a_card_that_gets_a_context_later_is_added),
                PEER_TEST(correct_mappings_are_not_touched),
                PEER_TEST(unknown_and_unmanaged_cards_are_left_out),
                PEER_TEST(a_single_card_causes_no_driver_calls),
                PEER_TEST(managed_memory_needs_no_mapping),
                PEER_TEST(an_update_waits_for_busy_extents),
                PEER_TEST(a_bystander_does_not_wait_for_busy_extents),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
