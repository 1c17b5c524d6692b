/* The growing string. */
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "tests/support.h"

#include <string.h>

START_TEST(grows_and_stays_terminated)
{
    struct strbuf b = {0};
    char *text;
    size_t len;

    for (int i = 0; i < 5000; i++) {
        strbuf_putc(&b, 'a');
        strbuf_printf(&b, "%d", i % 10);
        strbuf_put(&b, "\0", 1);
        ck_assert(b.data[b.len] == 0 && b.len < b.capacity);
    }
    ck_assert_uint_eq(b.len, 15000);
    ck_assert_mem_eq(b.data, "a0\0a1\0", 6);
    text = strbuf_take(&b, &len);
    ck_assert(text && len == 15000 && !b.data && !b.len);
    mem_free(text);
    text = strbuf_take(&b, &len); /* nothing was put: still a string */
    ck_assert(text && len == 0 && text[0] == 0);
    mem_free(text);
}
END_TEST

START_TEST(a_limit_sticks)
{
    struct strbuf b = {.limit = 10};

    strbuf_puts(&b, "12345");
    strbuf_puts(&b, "123456");
    ck_assert(b.failed && b.len == 5);
    strbuf_putc(&b, 'x'); /* not after a failure, though it would fit */
    ck_assert_uint_eq(b.len, 5);
    ck_assert_ptr_null(strbuf_take(&b, NULL));
    ck_assert(!b.failed && b.limit == 10);
    strbuf_puts(&b, "1234567890");
    ck_assert(!b.failed && b.len == 10);
    strbuf_clear(&b);
    ck_assert(b.len == 0 && b.data[0] == 0);
    strbuf_release(&b);
}
END_TEST

START_TEST(no_memory_sticks)
{
    struct strbuf b = {0};

    mem_fail_after(1);
    strbuf_puts(&b, "begin");
    for (int i = 0; i < 100; i++)
        strbuf_puts(&b, "0123456789");
    mem_fail_after(-1);
    ck_assert(b.failed && b.len >= 5);
    ck_assert_mem_eq(b.data, "begin", 5);
    strbuf_printf(&b, "%s", "more");
    ck_assert_ptr_null(strstr(b.data, "more"));
    strbuf_release(&b);
    ck_assert(!b.data && !b.failed);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("strbuf");
    TCase *c = tcase_create("strbuf");

    tcase_add_test(c, grows_and_stays_terminated);
    tcase_add_test(c, a_limit_sticks);
    tcase_add_test(c, no_memory_sticks);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
