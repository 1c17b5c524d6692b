/* GPU utilisation from made-up /proc and /sys folders of the three kernel drivers: shares, clients
 * counted once, frequency, temperature, reasons. */
#include "gpu/driver/utilisation.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char root[300];

static void put(const char *path, const char *text)
{
    char full[700], command[800];
    FILE *f;

    snprintf(full, sizeof full, "%.300s/%.300s", root, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
    ck_assert_int_eq(system(command), 0);
    ck_assert_ptr_nonnull(f = fopen(full, "w"));
    fputs(text, f);
    fclose(f);
}

static void fresh(void)
{
    static int n;

    snprintf(root, sizeof root, "%.200s/%d", support_tmpdir(), n++);
    mkdir(root, 0700);
}

/* card1, whose device link leads to this PCI address. */
static void card(const char *device)
{
    char link[700], target[200];

    put("sys/class/drm/card1/dev", "226:1\n");
    snprintf(link, sizeof link, "%.300s/sys/class/drm/card1/device", root);
    snprintf(target, sizeof target, "../../../devices/%.100s", device);
    ck_assert_int_eq(symlink(target, link), 0);
}

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};

    nanosleep(&t, NULL);
}

static void read_twice(const char *path, const char *before, const char *after, float *use,
                       float *mhz, float *temperature, char *why)
{
    struct utilisation *u = utilisation_new(root);

    if (path)
        put(path, before);
    utilisation_read(u, use, mhz, temperature, why, 200);
    ck_assert(isnan(*use) && why[0]);
    pause_ms(20);
    if (path)
        put(path, after);
    utilisation_read(u, use, mhz, temperature, why, 200);
    utilisation_free(u);
}

START_TEST(test_i915)
{
    struct utilisation *u = NULL;
    float use, mhz, temperature;
    char why[200];

    fresh();
    card("pci0000:00/0000:00:02.0");
    put("sys/class/drm/card1/gt_act_freq_mhz", "1150\n");
    put("proc/self/fdinfo/3", "pos:\t0\nflags:\t02\n");
    /* the same client behind two descriptors: counted once */
    for (int i = 0; i < 2; i++) {
        const char *text = i ? "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-"
                               "engine-render:\t10000000 ns\ndrm-engine-copy:\t10 ns\n"
                             : "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-"
                               "engine-render:\t0 ns\ndrm-engine-copy:\t0 ns\n";

        put("proc/self/fdinfo/7", text);
        put("proc/self/fdinfo/8", text);
        if (!i) {
            u = utilisation_new(root);
            utilisation_read(u, &use, &mhz, &temperature, why, sizeof why);
            pause_ms(20);
        }
    }
    utilisation_read(u, &use, &mhz, &temperature, why, sizeof why);
    utilisation_free(u);
    ck_assert_msg(use > 0 && use <= 0.5f, "10 ms of work in 20 or more: %g", (double)use);
    ck_assert_float_eq(mhz, 1150);
    ck_assert(isnan(temperature));
}
END_TEST

START_TEST(test_xe_cycles)
{
    float use, mhz, temperature;
    char why[200];

    fresh();
    card("pci0000:00/0000:00:02.0");
    put("sys/class/drm/card1/gt/gt0/rps_act_freq_mhz", "900\n");
    /* two clients share one clock: their cycles add up, the total is not doubled; two compute
     * engines */
    put("proc/self/fdinfo/4",
        "drm-driver: xe\ndrm-client-id: 1\ndrm-pdev: 0000:00:02.0\ndrm-cycles-ccs: "
        "100\ndrm-total-cycles-ccs: 1000\ndrm-engine-capacity-ccs: 2\n");
    read_twice("proc/self/fdinfo/5",
               "drm-driver: xe\ndrm-client-id: 2\ndrm-pdev: 0000:00:02.0\ndrm-cycles-ccs: "
               "200\ndrm-total-cycles-ccs: 1000\ndrm-engine-capacity-ccs: 2\n",
               "drm-driver: xe\ndrm-client-id: 2\ndrm-pdev: 0000:00:02.0\ndrm-cycles-ccs: "
               "800\ndrm-total-cycles-ccs: 2000\ndrm-engine-capacity-ccs: 2\n",
               &use, &mhz, &temperature, why);
    ck_assert_float_eq_tol(use, 0.3f, 1e-6f);
    ck_assert_float_eq(mhz, 900);
    ck_assert_str_eq(why, "");
}
END_TEST

START_TEST(test_amdgpu)
{
    float use, mhz, temperature;
    char why[200];

    fresh();
    put("sys/class/drm/card1/device/pp_dpm_sclk", "0: 800Mhz\n1: 2700Mhz *\n");
    put("sys/class/drm/card1/device/hwmon/hwmon3/temp1_input", "61000\n");
    read_twice("proc/self/fdinfo/9",
               "drm-driver:\tamdgpu\ndrm-client-id:\t3\ndrm-engine-gfx:\t100 "
               "ns\ndrm-engine-compute:\t0 ns\n",
               "drm-driver:\tamdgpu\ndrm-client-id:\t3\ndrm-engine-gfx:\t110 "
               "ns\ndrm-engine-compute:\t9000000000 ns\n",
               &use, &mhz, &temperature, why);
    ck_assert_float_eq(use, 1);
    ck_assert_float_eq(mhz, 2700);
    ck_assert_float_eq_tol(temperature, 61, 1e-3f);
}
END_TEST

START_TEST(test_reasons)
{
    float use, mhz, temperature;
    char why[200];

    fresh();
    read_twice(NULL, NULL, NULL, &use, &mhz, &temperature, why);
    ck_assert(isnan(use) && isnan(mhz) && isnan(temperature));
    ck_assert_ptr_nonnull(strstr(why, "/proc/self/fdinfo"));
    read_twice("proc/self/fdinfo/9", "drm-driver:\tnouveau\ndrm-client-id:\t3\n",
               "drm-driver:\tnouveau\ndrm-client-id:\t3\n", &use, &mhz, &temperature, why);
    ck_assert(isnan(use));
    ck_assert_ptr_nonnull(strstr(why, "nouveau"));
}
END_TEST

/* Whatever the files hold, nothing breaks. */
START_TEST(test_garbage)
{
    static const char *const texts[] = {
        "drm-client-id:\n", "drm-client-id: 99999999999999999999999\ndrm-engine-: x\ndrm-cycles-",
        "drm-engine-a:1\n:\n\ndrm-client-id:1",
        ("drm-client-id: 1\ndrm-engine-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: "
         "5\ndrm-total-cycles-b: 0\n")};
    float use, mhz, temperature;
    char why[200];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fresh();
        put("sys/class/drm/card1/device/pp_dpm_sclk", "*");
        read_twice("proc/self/fdinfo/9", texts[i], texts[(i + 1) % 4], &use, &mhz, &temperature,
                   why);
        ck_assert(isnan(use) || (use >= 0 && use <= 1));
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("utilisation");
    TCase *c = tcase_create("drm");

    tcase_add_test(c, test_i915);
    tcase_add_test(c, test_xe_cycles);
    tcase_add_test(c, test_amdgpu);
    tcase_add_test(c, test_reasons);
    tcase_add_test(c, test_garbage);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
