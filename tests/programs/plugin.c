/* plugin: loads a test program that is a library, as plugin loaders and Julia do, and runs it.
 *
 *   plugin LIBRARY [ARGUMENT...]
 *
 * The library is found by this program's run path alone. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
        void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
        int (*run)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "main") : NULL;

        if (!run) {
                fprintf(stderr, "plugin: %s\n", argc > 1 ? dlerror() : "which library?");
                return 2;
        }
        return run(argc - 1, argv + 1);
}
