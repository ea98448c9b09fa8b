/* hidden_stub.c: has the name of the driver's library that decodes video, and does nothing. */
int cuvidNothing(void);

__attribute__((visibility("default"))) int cuvidNothing(void)
{
        return 0;
}
