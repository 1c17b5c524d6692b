/* moetop with the tests' device in place of OpenCL's: $FAULT says what is wrong with it, "wrong:60"
 * one bit of the result of its 60th job, "memory:60" five jobs without memory from there on,
 * "lost:60" every call from there on, "slow:60" every job from there on while more than 1 MiB of
 * blocks are there. tests/check_audit.c runs it; so may whoever wants to see what is said then. */
#include "tests/fake_device.h"

#define opencl_device_ops fake_device_ops
#include "app/devices.c"

__attribute__((constructor)) static void listen_to_fault(void)
{
    const char *fault = getenv("FAULT"), *colon = fault ? strchr(fault, ':') : NULL;
    long n = colon ? atol(colon + 1) : 0;
    struct fake_control c = {0};

    if (n && !strncmp(fault, "wrong:", 6)) {
        c.wrong_at = n;
    } else if (n && !strncmp(fault, "memory:", 7)) {
        c.memory_at = n;
        c.memory_jobs = 4;
    } else if (n && !strncmp(fault, "lost:", 5)) {
        c.fail_at = n;
        c.lost = true;
    } else if (n && !strncmp(fault, "slow:", 5)) {
        c.slow_at = n;
        c.slow_us = 60000;
        c.slow_bytes = 1 << 20;
    }
    fake_device_control(&c);
}
