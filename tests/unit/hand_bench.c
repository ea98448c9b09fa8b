/* hand_bench.c: owns the tests' hand. */
#include "unit.h"

#include "hand_bench.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

struct hand_page *bench_page;
int bench_line = -1;
struct hand_clients bench_proved;
static int far; /* the library's end of the line */

bool bench_hand_offered(void)
{
        const int fd = memfd_create("hand_bench", MFD_CLOEXEC);
        struct hand_page *page;
        int ends[2];

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, sizeof(*page)), 0);
        page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(page != MAP_FAILED);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        rm_offer_hand(fd, ends[1]);
        if (fcntl(ends[1], F_GETFD) < 0) {
                (void)close(ends[0]);
                (void)munmap(page, sizeof(*page));
                return false;
        }
        bench_page = page;
        bench_line = ends[0];
        far = ends[1];
        return true;
}

struct hand_bench bench_hand_is(void)
{
        return (struct hand_bench){bench_page, bench_line, far};
}

void bench_hand_be(const struct hand_bench *b)
{
        bench_page = b->page;
        bench_line = b->line;
        far = b->far;
}

void bench_hand_forgets(void)
{
        (void)close(bench_line);
        (void)munmap(bench_page, sizeof(*bench_page));
        bench_page = NULL;
        bench_line = -1;
}

/* The library closes its end with the lock of its ledger held, and gives the lock up when the
 * program runs. */
void bench_hand_dies(void)
{
        const struct timespec nap = {.tv_nsec = NSEC_PER_MSEC / 10};

        (void)rm_channels(); /* what the test has set is set before: tsan sees no sockets */
        (void)shutdown(bench_line, SHUT_RDWR);
        for (unsigned i = 0; fcntl(far, F_GETFD) >= 0 && i < 5000; i++)
                (void)nanosleep(&nap, NULL);
        (void)rm_channels();
        bench_hand_forgets();
}

static uint32_t change(void *userdata, const struct hand_call *c, bool disable)
{
        return rm_of_the_hand(c->count, c->clients, c->channels, disable);
}

int bench_hand_off(void)
{
        return hand_names_off(bench_page, &bench_proved, change, NULL);
}

int bench_hand_on(void)
{
        return hand_names_on(bench_page, &bench_proved, change, NULL);
}

void bench_hand_rings(void)
{
        char byte = 1;

        (void)rm_channels();
        assert_int_equal(send(bench_line, &byte, 1, 0), 1);
}

bool bench_hand_is_rung(void)
{
        struct pollfd p = {.fd = bench_line, .events = POLLIN};
        char bytes[8];

        return poll(&p, 1, 1000) == 1 && recv(bench_line, bytes, sizeof(bytes), MSG_DONTWAIT) > 0;
}
