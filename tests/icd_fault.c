/* An OpenCL driver that is broken on purpose, as an ICD loader sees it: with FAULT_crash it dies
 * when it is asked for its platforms, with FAULT_hang it never answers. tests/check_opencl.c lets
 * the loader find it. */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

void *clGetExtensionFunctionAddress(const char *name);

void *clGetExtensionFunctionAddress(const char *name)
{
    (void)name;
#ifdef FAULT_crash
    abort();
#else
    for (;;)
        sleep(1000);
#endif
    return NULL;
}
