/* hidden_stub.c: stands for a library of the driver that decodes video. */
int cuvidNothing(void);

__attribute__((visibility("default"))) int cuvidNothing(void)
{
        return 0;
}
