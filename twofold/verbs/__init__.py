"""What Twofold does, one module for each verb, called by Python and by the command line alike."""
