/* Entry point. */
#include <stdio.h>

int main(int argc, char **argv)
{
    printf("moetop %s\n", MOETOP_VERSION);
    return 0;
}
