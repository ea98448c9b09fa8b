/* poolshare: memory of an exportable pool. Another process gets the pool's POSIX descriptor over a socket,
 * opens the pool and the memory allocated from it, and checks and changes that memory in place. Each
 * process also has memory of its own. */
#include "runtime.cuh"

#include <sys/socket.h>
#include <sys/wait.h>

enum { WORDS = 1 << 20, BLOCKS = 3, ROUNDS = 40 };

static void all(bool out, int fd, void *data, size_t bytes)
{
        ssize_t n = out ? write(fd, data, bytes) : read(fd, data, bytes);

        if (n != (ssize_t)bytes)
                fail("the other process is gone");
}

/* Sends a byte, and a descriptor with it. */
static int pass(int socket, int fd)
{
        char byte = 0, space[CMSG_SPACE(sizeof(int))] = {};
        struct iovec io = {&byte, 1};
        struct msghdr m = {};
        struct cmsghdr *c;

        m.msg_iov = &io;
        m.msg_iovlen = 1;
        m.msg_control = space;
        m.msg_controllen = sizeof(space);
        if (fd < 0) {
                if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != 1 || !(c = CMSG_FIRSTHDR(&m)))
                        fail("no descriptor came");
                memcpy(&fd, CMSG_DATA(c), sizeof(fd));
                return fd;
        }
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        if (sendmsg(socket, &m, 0) != 1)
                fail("the descriptor was not sent");
        return fd;
}

static int importer(int socket)
{
        cudaMemPoolPtrExportData pointers[BLOCKS];
        int fd = pass(socket, -1);
        cudaMemAccessDesc access = {};
        uint32_t *at[BLOCKS], *own;
        cudaMemPool_t pool;
        cudaStream_t s;
        char byte;

        TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        TRY(cudaMalloc(&own, WORDS * 4));
        fill<<<64, 256, 0, s>>>(own, WORDS, 9);
        TRY(cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                                 cudaMemHandleTypePosixFileDescriptor, 0));
        (void)close(fd);
        access.location.type = cudaMemLocationTypeDevice;
        TRY(cudaMemPoolGetAccess(&access.flags, pool, &access.location));
        if (access.flags != cudaMemAccessFlagsProtReadWrite) {
                access.flags = cudaMemAccessFlagsProtReadWrite;
                TRY(cudaMemPoolSetAccess(pool, &access, 1));
        }
        all(false, socket, pointers, sizeof(pointers));
        for (unsigned k = 0; k < BLOCKS; k++)
                TRY(cudaMemPoolImportPointer((void **)&at[k], pool, &pointers[k]));
        for (unsigned i = 0; i < ROUNDS; i++) {
                all(false, socket, &byte, 1);
                for (unsigned k = 0; k < BLOCKS; k++)
                        step<<<64, 256, 0, s>>>(at[k], WORDS, i + 100 * k);
                step<<<64, 256, 0, s>>>(own, WORDS, i);
                TRY(cudaStreamSynchronize(s));
                all(true, socket, &byte, 1);
        }
        uint64_t sum = sum_on_card(own, WORDS);
        /* The importer frees the memory before the exporter does. */
        for (unsigned k = 0; k < BLOCKS; k++)
                TRY(cudaFreeAsync(at[k], s));
        TRY(cudaStreamSynchronize(s));
        TRY(cudaMemPoolDestroy(pool));
        all(true, socket, &sum, sizeof(sum));
        return 0;
}

int main(int argc, char **argv)
{
        cudaMemPoolPtrExportData pointers[BLOCKS];
        cudaMemPoolProps props = {};
        uint32_t *at[BLOCKS], *own;
        int ends[2], fd, kinds, status;
        cudaMemPool_t pool;
        cudaStream_t s;
        uint64_t sum;
        char byte = 1;
        pid_t pid;

        if (argc > 1)
                return importer(0);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
                fail("no sockets");
        pid = fork();
        if (pid == 0) {
                (void)dup2(ends[1], 0);
                (void)close(ends[0]);
                (void)execl("/proc/self/exe", argv[0], "import", (char *)NULL);
                _exit(1);
        }
        (void)close(ends[1]);
        TRY(cudaDeviceGetAttribute(&kinds, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
        if (!(kinds & cudaMemHandleTypePosixFileDescriptor))
                fail("no pool can be exported here");
        TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        TRY(cudaMalloc(&own, WORDS * 4));
        fill<<<64, 256, 0, s>>>(own, WORDS, 3);
        props.allocType = cudaMemAllocationTypePinned;
        props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
        props.location.type = cudaMemLocationTypeDevice;
        TRY(cudaMemPoolCreate(&pool, &props));
        for (unsigned k = 0; k < BLOCKS; k++) {
                TRY(cudaMallocFromPoolAsync(&at[k], WORDS * 4, pool, s));
                fill<<<64, 256, 0, s>>>(at[k], WORDS, k);
        }
        TRY(cudaStreamSynchronize(s));
        TRY(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
        (void)pass(ends[0], fd);
        (void)close(fd);
        for (unsigned k = 0; k < BLOCKS; k++)
                TRY(cudaMemPoolExportPointer(&pointers[k], at[k]));
        all(true, ends[0], pointers, sizeof(pointers));
        for (unsigned i = 0; i < ROUNDS; i++) {
                for (unsigned k = 0; k < BLOCKS; k++)
                        step<<<64, 256, 0, s>>>(at[k], WORDS, k);
                step<<<64, 256, 0, s>>>(own, WORDS, i);
                TRY(cudaStreamSynchronize(s));
                all(true, ends[0], &byte, 1);
                all(false, ends[0], &byte, 1);
        }
        all(false, ends[0], &sum, sizeof(sum));
        if (waitpid(pid, &status, 0) != pid || status != 0)
                fail("the importer did not end well");
        for (unsigned k = 0; k < BLOCKS; k++)
                say("shared", sum_on_card(at[k], WORDS));
        say("own", sum_on_card(own, WORDS));
        say("the importer's own", sum);
        for (unsigned k = 0; k < BLOCKS; k++)
                TRY(cudaFreeAsync(at[k], s));
        TRY(cudaStreamSynchronize(s));
        TRY(cudaMemPoolDestroy(pool));
        return done();
}
