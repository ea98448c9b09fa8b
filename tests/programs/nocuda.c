/* nocuda: a program without CUDA, which a preloaded library must leave alone. */
#include <stdio.h>

int main(void)
{
        (void)printf("{\"event\":\"end\",\"program\":\"nocuda\",\"ok\":true}\n");
        return 0;
}
