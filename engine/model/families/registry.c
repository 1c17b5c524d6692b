/* Every family there is. Constant data. */
#include "engine/model/families/families.h"

#include <stddef.h>

const struct family *const families[] = {&family_phimoe, NULL};
