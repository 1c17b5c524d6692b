/* OpenCL's functions by their names without "cl": cl.Finish(queue). libOpenCL is loaded at run
 * time, so that the program starts on a machine without it. Private to gpu/. */
#ifndef GPU_FUNCTIONS_H
#define GPU_FUNCTIONS_H

#include <CL/cl.h>
#include <stdint.h>

#include "engine/base/error.h"

/* All that gpu/ calls; what is called and not listed does not compile. */
#define OPENCL_FUNCTIONS(F)                   \
    F(BuildProgram)                           \
    F(CreateBuffer)                           \
    F(CreateCommandQueue)                     \
    F(CreateContext)                          \
    F(CreateKernel)                           \
    F(CreateProgramWithBinary)                \
    F(CreateProgramWithSource)                \
    F(CreateSubBuffer)                        \
    F(EnqueueBarrierWithWaitList)             \
    F(EnqueueCopyBuffer)                      \
    F(EnqueueMapBuffer)                       \
    F(EnqueueMarkerWithWaitList)              \
    F(EnqueueNDRangeKernel)                   \
    F(EnqueueReadBuffer)                      \
    F(EnqueueUnmapMemObject)                  \
    F(EnqueueWriteBuffer)                     \
    F(Finish)                                 \
    F(Flush)                                  \
    F(GetDeviceIDs)                           \
    F(GetDeviceInfo)                          \
    F(GetEventInfo)                           \
    F(GetEventProfilingInfo)                  \
    F(GetExtensionFunctionAddressForPlatform) \
    F(GetKernelInfo)                          \
    F(GetPlatformIDs)                         \
    F(GetPlatformInfo)                        \
    F(GetProgramBuildInfo)                    \
    F(GetProgramInfo)                         \
    F(ReleaseCommandQueue)                    \
    F(ReleaseContext)                         \
    F(ReleaseEvent)                           \
    F(ReleaseKernel)                          \
    F(ReleaseMemObject)                       \
    F(ReleaseProgram)                         \
    F(RetainCommandQueue)                     \
    F(RetainContext)                          \
    F(RetainEvent)                            \
    F(SetKernelArg)                           \
    F(WaitForEvents)

#define OPENCL_MEMBER(name) __typeof__(cl##name) *name;
struct opencl_functions {
    OPENCL_FUNCTIONS(OPENCL_MEMBER)
};
/* Zeros before the first success of opencl_load; constant after it. */
extern struct opencl_functions cl;

/* Loads libOpenCL at the first call. 0, or ERR_DEVICE and a line that names the library and its
 * packages, at every call the same. Any thread. Nothing else of gpu/ may run before it. */
int opencl_load(struct error *e);

/* Releases a buffer, if there is one, and counts it; _part: one that a single job had. Any thread.
 */
void opencl_release(cl_mem *mem);
void opencl_release_part(cl_mem *mem);
/* Changes with every buffer that is released, of any device: the next one may have its handle, and
 * a kernel to which that was an argument has to be told again. Any thread. */
uint64_t opencl_releases(void);
/* Likewise, of those that more than one job has. */
uint64_t opencl_lasting_releases(void);

#endif
