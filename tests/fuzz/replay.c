/* The main of a fuzz target outside libFuzzer: runs every file of the folders (and the files)
 * named, so that `make check` repeats what was once found. Besides each file as it is: every prefix
 * of the small ones and a few thousand single-byte changes, from a fixed generator. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long runs;

static void run(const uint8_t *data, size_t size)
{
    /* exactly as long as the input: ASan sees the first byte beyond */
    uint8_t *copy = malloc(size ? size : 1);

    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

static void variants(uint8_t *data, size_t size)
{
    uint32_t x = 2463534242u;
    int changes = size < 4096 ? 400 : 100;

    for (size_t n = 0; n < size && n < 300; n++)
        run(data, n);
    for (int i = 0; size && i < changes; i++) {
        size_t at;
        uint8_t old;

        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        at = (x >> 8) % size;
        old = data[at];
        data[at] = (uint8_t)(x & 3 ? x >> 24 : (uint32_t)old ^ 1u << (x >> 29));
        run(data, size);
        data[at] = old;
    }
}

static int file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(1 << 22);
    size_t size;

    if (!f || !data) {
        fprintf(stderr, "%s: cannot read\n", path);
        return 1;
    }
    size = fread(data, 1, 1 << 22, f);
    fclose(f);
    run(data, size);
    variants(data, size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int bad = 0;

    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        struct dirent *entry;
        char path[4096];

        if (!d) {
            bad |= file(argv[i]);
            continue;
        }
        while ((entry = readdir(d))) {
            struct stat st;

            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
                bad |= file(path);
        }
        closedir(d);
    }
    if (!runs) {
        fprintf(stderr, "%s: nothing to replay\n", argv[0]);
        return 1;
    }
    printf("%s: %lu inputs\n", strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0], runs);
    return bad;
}
