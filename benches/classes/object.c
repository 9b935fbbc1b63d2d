/* A page of 1035 bytes that costs processor time: COST_MS of it, whoever else computes meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(void)
{
    const char *cost = getenv("COST_MS");
    long long left_ns = (cost ? atoll(cost) : 8) * 1000000LL;
    struct timespec now;
    char body[1035];
    memset(body, 'x', sizeof body);
    do {
        for (volatile int i = 0; i < 2000; i++)
            ;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000000000LL + now.tv_nsec < left_ns);
    printf("Content-Type: text/plain\r\nContent-Length: %zu\r\n\r\n", sizeof body);
    return fwrite(body, 1, sizeof body, stdout) == sizeof body ? 0 : 1;
}
