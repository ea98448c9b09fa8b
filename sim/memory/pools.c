/* pools.c: owns the list of pools. Its lock is sim.lock. */
#include "sim/memory/pool.h"

static struct CUmemPoolHandle_st *pools;

void pool_begin(CUmemoryPool p, unsigned device, uint64_t most)
{
        p->magic = MAGIC_POOL;
        p->may[0] = p->may[1] = 1;
        pool_memory_init(&p->memory, p, device, most);
        p->next = pools;
        pools = p;
}

void pools_synced(CUcontext c, const struct point *p)
{
        if (!__atomic_load_n(&pools, __ATOMIC_RELAXED))
                return;
        pthread_mutex_lock(&sim.lock);
        for (CUmemoryPool pool = pools; pool; pool = pool->next) {
                pool_memory_synced(&pool->memory, c, p);
                (void)pool_memory_release(&pool->memory, pool->threshold, false);
                if (pool->destroyed)
                        pool_memory_end(&pool->memory);
        }
        pthread_mutex_unlock(&sim.lock);
}

bool pools_release(unsigned device)
{
        bool any = false;

        pthread_mutex_lock(&sim.lock);
        for (CUmemoryPool p = pools; p; p = p->next)
                any = (p->memory.device == device && pool_memory_release(&p->memory, 0, true)) ||
                      any;
        pthread_mutex_unlock(&sim.lock);
        return any;
}

void block_free_on(struct block *b, CUstream stream)
{
        pool_memory_free(b->piece, stream);
        block_remove(b);
}

void pool_shrink(CUmemoryPool pool)
{
        (void)pool_memory_release(&pool->memory, pool->threshold, false);
}
