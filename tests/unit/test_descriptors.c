/* test_descriptors.c: descriptors that travel with a message: all that were sent arrive, and the
 * receiver writes none beyond its array. */
#include "unit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/macros.h"

#define GUARD 0x5afe

static int ends[2];
static int sent[DESCRIPTORS_MAX], got[DESCRIPTORS_MAX + 8];

static int connected(void **state)
{
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        for (unsigned i = 0; i < DESCRIPTORS_MAX; i++)
                assert_true((sent[i] = memfd_create("sent", MFD_CLOEXEC)) >= 0);
        for (unsigned i = 0; i < ARRAY_SIZE(got); i++)
                got[i] = GUARD;
        return 0;
}

static int closed(void **state)
{
        (void)close(ends[0]);
        (void)close(ends[1]);
        for (unsigned i = 0; i < DESCRIPTORS_MAX; i++)
                (void)close(sent[i]);
        return 0;
}

/* Sends n descriptors and receives at most `most`. Returns the result of descriptors_take(). */
static unsigned pass(unsigned n, unsigned most)
{
        char byte = 'x', received;
        struct iovec out = {&byte, 1}, in = {&received, 1};
        struct msghdr h = {.msg_iov = &out, .msg_iovlen = 1};
        union descriptors room;

        descriptors_attach(&h, &room, sent, n);
        assert_int_equal(sendmsg(ends[0], &h, 0), 1);
        h = (struct msghdr){.msg_iov = &in, .msg_iovlen = 1};
        descriptors_expect(&h, &room);
        assert_int_equal(recvmsg(ends[1], &h, MSG_CMSG_CLOEXEC), 1);
        assert_false(h.msg_flags & MSG_CTRUNC);
        return descriptors_take(&h, most, got);
}

static void check_same_file(int a, int b)
{
        struct stat sa, sb;

        assert_int_equal(fstat(a, &sa), 0);
        assert_int_equal(fstat(b, &sb), 0);
        assert_int_equal(sa.st_ino, sb.st_ino);
        assert_int_equal(sa.st_dev, sb.st_dev);
}

static void all_descriptors_sent_arrive_in_order(void **state)
{
        for (unsigned n = 0; n <= DESCRIPTORS_MAX; n++) {
                assert_int_equal(pass(n, DESCRIPTORS_MAX), n);
                for (unsigned i = 0; i < n; i++) {
                        check_same_file(sent[i], got[i]);
                        (void)close(got[i]);
                        got[i] = GUARD;
                }
                for (unsigned i = n; i < ARRAY_SIZE(got); i++)
                        assert_int_equal(got[i], GUARD);
        }
}

static void no_more_descriptors_are_taken_than_there_is_room_for(void **state)
{
        for (unsigned most = 0; most <= DESCRIPTORS_MAX; most++) {
                assert_int_equal(pass(DESCRIPTORS_MAX, most), most);
                for (unsigned i = 0; i < most; i++) {
                        (void)close(got[i]);
                        got[i] = GUARD;
                }
                for (unsigned i = 0; i < ARRAY_SIZE(got); i++)
                        assert_int_equal(got[i], GUARD);
        }
}

/* The kernel may put the sender's credentials (SO_PASSCRED) into the same buffer. */
static void other_control_data_is_no_descriptor(void **state)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(64) + CMSG_SPACE(2 * sizeof(int))];
        } room = {0};
        struct msghdr h = {.msg_control = &room, .msg_controllen = sizeof(room)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        const int fds[2] = {70, 71};

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_CREDENTIALS;
        c->cmsg_len = CMSG_LEN(64);
        assert_int_equal(descriptors_take(&h, DESCRIPTORS_MAX, got), 0);
        c = CMSG_NXTHDR(&h, c);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(c), fds, sizeof(fds));
        assert_int_equal(descriptors_take(&h, DESCRIPTORS_MAX, got), 2);
        assert_int_equal(got[0], 70);
        assert_int_equal(got[1], 71);
        assert_int_equal(got[2], GUARD);
        c->cmsg_level = IPPROTO_IP; /* the same type number on another level */
        assert_int_equal(descriptors_take(&h, DESCRIPTORS_MAX, got), 0);
}

#define DESCRIPTORS_TEST(name) cmocka_unit_test_setup_teardown(name, connected, closed)

int main(void)
{
        const struct CMUnitTest tests[] = {
                DESCRIPTORS_TEST(all_descriptors_sent_arrive_in_order),
                DESCRIPTORS_TEST(no_more_descriptors_are_taken_than_there_is_room_for),
                DESCRIPTORS_TEST(other_control_data_is_no_descriptor),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
