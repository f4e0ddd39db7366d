/* Says its rank and a number of its share; the last rank ends with the code that it is given. No MPI, no library. */
#include <stdio.h>
#include <stdlib.h>

static long number(const char *name)
{
	const char *text = getenv(name);
	if (text == NULL) {
		fprintf(stderr, "%s is not set\n", name);
		exit(99);
	}
	return strtol(text, NULL, 10);
}

int main(int argc, char **argv)
{
	long rank = number("RANK"), size = number("WORLD_SIZE"), sum = 0;
	for (long i = rank; i < 1000; i += size)
		sum += i;
	printf("rank %ld of %ld: %ld\n", rank, size, sum);
	return argc > 1 && rank == size - 1 ? atoi(argv[1]) : 0;
}
