/* hidden_stub.c: stands for the driver's library that decodes video. */
int cuvidNothing(void);

__attribute__((visibility("default"))) int cuvidNothing(void)
{
        return 0;
}
